/* Stands in for cuBLAS and the driver, and lets the real cuDNN plan for a device that is only described.
 *
 * cuDNN 9.8 and later take a description of a device in place of one. So the kernels that it chooses, and the
 * workspaces that it asks for, are its own.
 */
#define _GNU_SOURCE
#include "device.h"
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- cuBLAS; its headers need more than the wheels bring ---- */

#define MAKES(name) SHOWN int name(void **made) { return *made = handle(), 0; }
#define ENDS(name) SHOWN int name(void *ended) { return free(ended), 0; }
MAKES(cublasCreate_v2)
ENDS(cublasDestroy_v2)
MAKES(cublasLtMatmulDescCreate)
ENDS(cublasLtMatmulDescDestroy)
MAKES(cublasLtMatmulPreferenceCreate)
ENDS(cublasLtMatmulPreferenceDestroy)
MAKES(cublasLtMatrixLayoutCreate)
ENDS(cublasLtMatrixLayoutDestroy)
SHOWN int cublasGetPointerMode_v2(void *h, int *mode) { return *mode = 0; }
SHOWN int cublasGetMathMode(void *h, int *mode) { return *mode = 0; }
SHOWN size_t cublasLtGetVersion(void) { return 130101; }
/* One algorithm without a workspace of its own; torch has taken the workspace before it asks. */
SHOWN int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *r, void *p, int wanted,
                                         void *result, int *found) {
    memset(result, 0, 96);
    return *found = 1, 0;
}

/* ---- the driver ---- */

MAKES(cuLinkCreate)
ENDS(cuLinkDestroy)
MAKES(cuModuleLoadData)
MAKES(cuModuleLoadDataEx)
MAKES(cuModuleGetFunction)
MAKES(cuLibraryLoadData)
MAKES(cuLibraryLoadFromFile)
MAKES(cuLibraryGetKernel)
MAKES(cuLibraryGetModule)
ENDS(cuLibraryUnload)
/* cuDNN looks these up before it plans. */
#define SUCCEEDS(name) SHOWN int name(void) { return 0; }
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuCtxPushCurrent_v2)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuLaunchKernelEx)
static int nothing(void) { return 0; }
SHOWN cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                                   unsigned long long flags,
                                                   enum cudaDriverEntryPointQueryResult *status) {
    void *own = dlsym(RTLD_DEFAULT, name);
    if (status) *status = cudaDriverEntryPointSuccess;
    return *f = own ? own : (void *)nothing, cudaSuccess;
}
static void *const CONTEXT = (void *)1;
SHOWN int cuDriverGetVersion(int *v) { return *v = 13000, 0; }
SHOWN int cuDeviceGet(int *d, int i) { return *d = 0; }
SHOWN int cuDeviceGetCount(int *n) { return *n = 1, 0; }
SHOWN int cuDeviceGetAttribute(int *v, int a, int d) { return cudaDeviceGetAttribute(v, a, d); }
SHOWN int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) { return *flags = 0, *active = 1, 0; }
SHOWN int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = CONTEXT, 0; }
SHOWN int cuCtxGetCurrent(void **c) { return *c = CONTEXT, 0; }
SHOWN int cuCtxPopCurrent(void **c) { return c ? *c = CONTEXT, 0 : 0; }
SHOWN int cuCtxPopCurrent_v2(void **c) { return cuCtxPopCurrent(c); }
SHOWN int cuCtxGetDevice(int *d) { return *d = 0; }
SHOWN int cuCtxGetLimit(size_t *v, int limit) { return *v = 1024, 0; }
SHOWN int cuStreamGetCtx(void *s, void **c) { return *c = CONTEXT, 0; }
SHOWN int cuGetErrorString(int e, const char **s) { return *s = "error of the stand-in", 0; }
SHOWN int cuGetErrorName(int e, const char **s) { return cuGetErrorString(e, s); }
SHOWN int cuPointerGetAttribute(void *v, int attribute, unsigned long long p) {
    enum { ORDINAL = 9 };
    if (attribute == ORDINAL) *(int *)v = 0;
    else *(void **)v = CONTEXT;
    return 0;
}
SHOWN int cuKernelGetFunction(void **f, void *k) { return *f = k, 0; }
enum { MAX_THREADS = 0, REGISTERS = 4 };
SHOWN int cuKernelGetAttribute(int *v, int a, void *k, int d) { return *v = a == REGISTERS ? 32 : 0, 0; }
SHOWN int cuFuncGetAttribute(int *v, int a, void *f) {
    return *v = a == REGISTERS ? 32 : a == MAX_THREADS ? 1024 : 0, 0;
}
SHOWN int cuOccupancyMaxPotentialClusterSize(int *n, void *f, void *c) { return *n = 8, 0; }
SHOWN int cuOccupancyMaxActiveClusters(int *n, void *f, void *c) { return *n = 16, 0; }
SHOWN int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, threads, shared, 0);
}

/* Memory that is mapped piece by piece: expandable segments. A handle of memory is its size. */
SHOWN int cuMemAddressReserve(uintptr_t *p, size_t bytes, size_t align, uintptr_t at, unsigned long long flags) {
    static uintptr_t next = 0x300000000000;
    uintptr_t wanted = __atomic_fetch_add(&next, bytes + PAGE, __ATOMIC_SEQ_CST);
    *p = (uintptr_t)mmap((void *)wanted, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return *p != wanted;
}
SHOWN int cuMemAddressFree(uintptr_t p, size_t bytes) { return munmap((void *)p, bytes) != 0; }
SHOWN int cuMemCreate(uintptr_t *memory, size_t bytes, void *how, unsigned long long flags) {
    enum { OUT_OF_MEMORY = 2 };
    return *memory = bytes, take(bytes) ? 0 : OUT_OF_MEMORY;
}
SHOWN int cuMemRelease(uintptr_t memory) { return give_back(memory), 0; }
SHOWN int cuMemGetAllocationGranularity(size_t *g, void *p, int option) { return *g = PAGE, 0; }

/* ---- cuDNN ---- */

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcudnn.so.9", RTLD_LAZY);
    return library ? dlsym(library, name) : 0;
}
static cudnnBackendDescriptor_t described;
static pthread_once_t describe_once = PTHREAD_ONCE_INIT;
static void describe(void) {
    const struct device *g = device();
    char *text;
    int length = asprintf(
        &text,
        "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"%s\",\"isTccDriver\":0,"
        "\"l2CacheSize\":%d,\"maxCtasPerSM\":%d,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
        "\"maxSharedMemoryPerBlockOptin\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,"
        "\"memClockRateKHz\":%d,\"multiProcessorCount\":%d,\"pciDeviceId\":1,\"regsPerBlock\":65536,"
        "\"reservedSharedMemoryPerBlock\":1024,\"smClockRateKHz\":%d,\"supportCoopLaunch\":1,"
        "\"totalGlobalMem\":%zu,\"warpSize\":32,\"maxGridSize\":[2147483647,65535,65535],"
        "\"maxBlockSize\":[1024,1024,64]}",
        g->major * 100 + g->minor * 10, g->name, g->l2_bytes, g->blocks, g->shared_optin, g->threads, g->memory_khz,
        g->multiprocessors, g->khz, g->bytes);
    REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &described);
    REAL(cudnnBackendSetAttribute)
    (described, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length, text);
    if (REAL(cudnnBackendFinalize)(described)) fputs("phantom: cuDNN does not take the device\n", stderr);
    free(text);
}
SHOWN cudnnStatus_t cudnnCreate(cudnnHandle_t *h) { return *h = handle(), 0; }
SHOWN cudnnStatus_t cudnnDestroy(cudnnHandle_t h) { return free(h), 0; }
SHOWN cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) { return 0; }
SHOWN cudnnStatus_t cudnnGetStream(cudnnHandle_t h, cudaStream_t *s) { return *s = 0, 0; }
SHOWN cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t p, cudnnBackendDescriptor_t v) {
    return 0;
}

/* Descriptors that get the device before they are final, in place of the handle that torch gives them. */
static struct waiting {
    void *descriptor;
    int attribute;
    struct waiting *next;
} *waiting;
static pthread_mutex_t waiting_lock = PTHREAD_MUTEX_INITIALIZER;
static int no_longer_waiting(void *descriptor) {
    int attribute = 0;
    pthread_mutex_lock(&waiting_lock);
    for (struct waiting **link = &waiting; *link; link = &(*link)->next)
        if ((*link)->descriptor == descriptor) {
            struct waiting *found = *link;
            attribute = found->attribute;
            *link = found->next;
            free(found);
            break;
        }
    pthread_mutex_unlock(&waiting_lock);
    return attribute;
}
SHOWN cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
    pthread_once(&describe_once, describe);
    cudnnStatus_t status = REAL(cudnnBackendCreateDescriptor)(type, made);
    int attribute = type == CUDNN_BACKEND_ENGINE_DESCRIPTOR           ? CUDNN_ATTR_ENGINE_DEVICEPROP
                    : type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR     ? CUDNN_ATTR_ENGINEHEUR_DEVICEPROP
                    : type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP
                                                                      : 0;
    if (attribute) {
        struct waiting *added = malloc(sizeof *added);
        pthread_mutex_lock(&waiting_lock);
        *added = (struct waiting){*made, attribute, waiting};
        waiting = added;
        pthread_mutex_unlock(&waiting_lock);
    }
    return status;
}
SHOWN cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    return no_longer_waiting(d), REAL(cudnnBackendDestroyDescriptor)(d);
}
SHOWN cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                             cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE || name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return 0;
    return REAL(cudnnBackendSetAttribute)(d, name, type, n, value);
}
SHOWN cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    int attribute = no_longer_waiting(d);
    if (attribute && REAL(cudnnBackendSetAttribute)(d, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &described))
        fprintf(stderr, "phantom: cuDNN takes no device for attribute %d\n", attribute);
    return REAL(cudnnBackendFinalize)(d);
}
