// Threads that share out the items of one stage of work after the other.
//
// The caller works too, and nobody waits for a thread to arrive: a stage is over when its items are done. So a thread
// that the system has put aside costs no more than the item it holds. With a barrier, as in OpenMP, all would wait for
// it at every stage: on two busy cores 30 layers took 100 times as long.
#pragma once

#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>

namespace chatlocal {

class Crew {
  public:
    // The crew of this process. It is never taken down: its threads sleep when there is nothing to do.
    static Crew& here() {
        static std::atomic<Crew*> present{nullptr};
        Crew* crew = present.load(std::memory_order_acquire);
        if (crew && crew->process_ == getpid()) return *crew;
        // The first one, or a child of a fork, which copies no threads. No lock: a fork may copy it while it is held.
        Crew* made = new Crew();
        if (present.compare_exchange_strong(crew, made, std::memory_order_acq_rel)) return *made;
        delete made;
        return *crew;
    }

    // Calls work(item) for each item below `count`, on up to `threads` threads, and returns when all are done. `work`
    // must not throw. A second caller at the same time does its items alone.
    template <class Work>
    void share(int64_t count, int threads, const Work& work) {
        std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
        if (count < 2 || threads < 2 || !lock.owns_lock() || !grow(threads - 1)) {
            for (int64_t item = 0; item < count; ++item) work(item);
            return;
        }
        // Closed while it is written: a late thread must not take an item by the old number and the new count.
        ticket_.store((epoch_ << 32) | kClosed, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        done_.store(0, std::memory_order_relaxed);
        count_.store(count, std::memory_order_relaxed);
        helpers_.store(threads - 1, std::memory_order_relaxed);
        context_.store(&work, std::memory_order_relaxed);
        call_.store([](const void* context, int64_t item) { (*static_cast<const Work*>(context))(item); },
                    std::memory_order_relaxed);
        ++epoch_;
        ticket_.store(epoch_ << 32, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_seq_cst)) {
            { const std::lock_guard<std::mutex> wait(sleep_); }
            woken_.notify_all();
        }
        work_on();
        for (int spins = 0; done_.load(std::memory_order_acquire) != count; ++spins) {
            if (spins < kSpins)
                _mm_pause();
            else
                sched_yield();  // the thread that holds the last item may be waiting for this very core
        }
    }

  private:
    static constexpr uint64_t kClosed = 0xffffffff;
    static constexpr int kSpins = 2000;        // some 50 microseconds
    static constexpr int kIdleSpins = 10000;  // longer than what lies between two layers

    using Call = void (*)(const void*, int64_t);

    bool grow(int helpers) {
        while (started_ < helpers) {
            try {
                std::thread(&Crew::help, this, started_).detach();
            } catch (const std::system_error&) {  // as many as the system allows
                return started_ > 0;
            }
            ++started_;
        }
        return true;
    }

    // Takes items of the present stage until there are none left.
    void work_on() {
        uint64_t ticket = ticket_.load(std::memory_order_acquire);
        while (static_cast<int64_t>(ticket & kClosed) < count_.load(std::memory_order_relaxed)) {
            if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
            // The stage cannot end before this item is done, so what belongs to it stays.
            call_.load(std::memory_order_relaxed)(context_.load(std::memory_order_relaxed), ticket & kClosed);
            done_.fetch_add(1, std::memory_order_release);
            ticket = ticket_.load(std::memory_order_acquire);
        }
    }

    void help(int number) {
        uint64_t seen = 0;
        while (true) {
            for (int spins = 0; ticket_.load(std::memory_order_acquire) >> 32 == seen; ++spins) {
                if (spins < kIdleSpins) {
                    _mm_pause();
                    continue;
                }
                std::unique_lock<std::mutex> wait(sleep_);
                sleeping_.fetch_add(1, std::memory_order_seq_cst);
                woken_.wait(wait, [&] { return ticket_.load(std::memory_order_seq_cst) >> 32 != seen; });
                sleeping_.fetch_sub(1, std::memory_order_seq_cst);
            }
            seen = ticket_.load(std::memory_order_acquire) >> 32;
            if (number < helpers_.load(std::memory_order_relaxed)) work_on();
        }
    }

    const pid_t process_ = getpid();
    std::mutex busy_;
    int started_ = 0;
    uint64_t epoch_ = 0;

    alignas(64) std::atomic<uint64_t> ticket_{0};  // number of the stage, then of the next item
    alignas(64) std::atomic<int64_t> done_{0};
    alignas(64) std::atomic<int64_t> count_{0};
    std::atomic<int> helpers_{0};
    std::atomic<const void*> context_{nullptr};
    std::atomic<Call> call_{nullptr};
    std::mutex sleep_;
    std::condition_variable woken_;
    std::atomic<int> sleeping_{0};
};

}  // namespace chatlocal
