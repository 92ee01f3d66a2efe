// Python's side of the kernels: products, and whole decoder layers, on x86-64 processors with AVX2 or AVX-512.
//
// Weights stay as they lie in memory (bfloat16 or float32, [out_features, in_features]); all that is not multiplied is
// float32. The sum behind one result has one order, whatever tile it is computed in, so a sequence gets the same bits
// alone, in a batch, and in pieces of any size. Tensors come as addresses: whoever calls keeps them alive and has checked
// their shapes.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define CHATLOCAL_AVX2 1
#include <new>

#include "decoder_layer.h"
#endif

namespace {

#ifdef CHATLOCAL_AVX2
using namespace chatlocal;

// Numbers of the formats; native/__init__.py has the same.
enum Format { kWide, kWidened, kWide512, kWidened512, kPaired };

bool runs_here(long format) {
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (format == kWide || format == kWidened) return avx2;
#ifdef CHATLOCAL_AVX512
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (format == kWide512 || format == kWidened512) return avx512;
    if (format == kPaired) return avx512 && __builtin_cpu_supports("avx512bf16");
#endif
    return false;
}

// Calls work(Wide()) or the like, for a format that runs here.
template <class Work>
void with_format(long format, const Work& work) {
    switch (format) {
#ifdef CHATLOCAL_AVX512
        case kWide512:
            return work(Wide512());
        case kWidened512:
            return work(Widened512());
        case kPaired:
            return work(Paired());
#endif
        case kWidened:
            return work(Widened());
        default:
            return work(Wide());
    }
}

// The format's number, with a ValueError for one that does not run here.
bool read_format(PyObject* number, long& format) {
    format = PyLong_AsLong(number);
    if (PyErr_Occurred()) return false;
    if (runs_here(format)) return true;
    PyErr_Format(PyExc_ValueError, "format %ld does not run on this processor", format);
    return false;
}

template <class T>
T* pointer(PyObject* number) {
    return static_cast<T*>(PyLong_AsVoidPtr(number));
}

// Numbers of a call, with a TypeError for the wrong count of them.
bool takes(Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted) return true;
    PyErr_Format(PyExc_TypeError, "takes %zd arguments, got %zd", wanted, given);
    return false;
}

PyObject* py_linear(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (!takes(count, 8)) return nullptr;
    const Matrix matrix{pointer<const void>(given[0]), nullptr};
    long format;
    if (!read_format(given[1], format)) return nullptr;
    float* rows = pointer<float>(given[2]);
    const Index tokens = PyLong_AsLongLong(given[3]), depth = PyLong_AsLongLong(given[4]);
    const Index out_features = PyLong_AsLongLong(given[5]);
    float* out = pointer<float>(given[6]);
    const int threads = static_cast<int>(PyLong_AsLong(given[7]));
    if (PyErr_Occurred()) return nullptr;
    Py_BEGIN_ALLOW_THREADS;
    with_format(format, [&](auto of) { linear<decltype(of)>(matrix, rows, tokens, depth, out_features, out, threads); });
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

// The layers that lie behind each other in a bytes object; none, with a ValueError, where it has another size.
const Layer* layers_of(PyObject* bytes, Py_ssize_t& count) {
    const Py_ssize_t size = PyBytes_Size(bytes), one = static_cast<Py_ssize_t>(sizeof(Layer));
    count = size / one;
    if (size > 0 && size % one == 0) return reinterpret_cast<const Layer*>(PyBytes_AsString(bytes));
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "a layer has %zd bytes, got %zd", one, size);
    return nullptr;
}

PyObject* py_scratch_size(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (!takes(count, 4)) return nullptr;
    Py_ssize_t layer_count;
    const Layer* layers = layers_of(given[0], layer_count);
    if (!layers) return nullptr;
    const Index tokens = PyLong_AsLongLong(given[1]), longest = PyLong_AsLongLong(given[2]);
    const int threads = static_cast<int>(PyLong_AsLong(given[3]));
    if (PyErr_Occurred()) return nullptr;
    return PyLong_FromLongLong(LayerPass<Wide>::scratch_size(*layers, tokens, longest, threads));
}

PyObject* py_decoder_layers(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (!takes(count, 14)) return nullptr;
    long format;
    if (!read_format(given[13], format)) return nullptr;
    Py_ssize_t layer_count;
    const Layer* layers = layers_of(given[0], layer_count);
    if (!layers) return nullptr;
    if (PyBytes_Size(given[1]) != 2 * layer_count * static_cast<Py_ssize_t>(sizeof(void*))) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "keys and values of each layer are needed");
        return nullptr;
    }
    void* const* caches = reinterpret_cast<void* const*>(PyBytes_AsString(given[1]));
    Place place{};
    place.tokens = PyLong_AsLongLong(given[2]);
    place.rows = pointer<const Index>(given[3]);
    place.columns = pointer<const Index>(given[4]);
    place.row_stride = PyLong_AsLongLong(given[5]);
    place.head_stride = PyLong_AsLongLong(given[6]);
    place.cosines = pointer<const float>(given[7]);
    place.sines = pointer<const float>(given[8]);
    place.rotary = PyLong_AsLongLong(given[9]);
    float* hidden = pointer<float>(given[10]);
    float* scratch = pointer<float>(given[11]);
    const int threads = static_cast<int>(PyLong_AsLong(given[12]));
    if (PyErr_Occurred()) return nullptr;
    bool enough = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        for (Py_ssize_t i = 0; i < layer_count; ++i) {
            place.keys = caches[i];
            place.values = caches[layer_count + i];
            with_format(format, [&](auto of) {
                LayerPass<decltype(of)>(layers[i], place, hidden, scratch, threads).run();
            });
        }
    } catch (const std::bad_alloc&) {
        enough = false;
    }
    Py_END_ALLOW_THREADS;
    if (!enough) return PyErr_NoMemory();
    Py_RETURN_NONE;
}
#else
bool runs_here(long) { return false; }
#endif

PyObject* py_runs_here(PyObject*, PyObject* number) {
    const long format = PyLong_AsLong(number);
    if (PyErr_Occurred()) return nullptr;
    return PyBool_FromLong(runs_here(format));
}

#define FAST(function) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, nullptr

PyMethodDef methods[] = {
    {"runs_here", py_runs_here, METH_O, nullptr},
#ifdef CHATLOCAL_AVX2
    {"linear", FAST(py_linear)},
    {"scratch_size", FAST(py_scratch_size)},
    {"decoder_layers", FAST(py_decoder_layers)},
#endif
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernels() { return PyModule_Create(&module); }
