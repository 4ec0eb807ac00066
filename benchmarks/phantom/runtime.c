/* Stands in for the CUDA runtime under PyTorch: memory is addresses without pages, kernels do nothing.
 *
 * Loaded before all else, with the soname of the driver's library, its symbols win over libcudart's. So torch's
 * dispatcher, the host code of its kernels and its caching allocator run as on a GPU. PHANTOM_GPU names the
 * GPU (H100, A100, T4), PHANTOM_MIB its memory if not its own, PHANTOM_CONTEXT_MIB the memory that is taken
 * before torch begins (512). Copies of up to 1 MiB are done; of larger ones, nobody reads a value.
 */
#define _GNU_SOURCE
#include "device.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define DONE cudaSuccess

/* ---- the device: data sheets, and cudaGetDeviceProperties as reported by others ---- */

static const struct device KNOWN[] = {
    {"H100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 2048, 32, 233472, 232448, 50 << 20, 5120, 1980000, 2619000,
     85029158912},
    {"A100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 2048, 32, 167936, 166912, 40 << 20, 5120, 1410000, 1593000,
     84987740160},
    {"T4", "Tesla T4", 7, 5, 40, 1024, 16, 65536, 65536, 4 << 20, 256, 1590000, 5001000, 15642329088},
};
static struct device chosen;
static size_t context_bytes;
static pthread_once_t choose_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void choose(void) {
    const char *key = getenv("PHANTOM_GPU"), *mib = getenv("PHANTOM_MIB"), *context = getenv("PHANTOM_CONTEXT_MIB");
    chosen = KNOWN[0];
    for (size_t i = 0; key && i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strcmp(KNOWN[i].key, key)) chosen = KNOWN[i];
    if (mib) chosen.bytes = (size_t)(atof(mib) * MIB);
    context_bytes = (context ? atoi(context) : 512) * MIB;
}
const struct device *device(void) {
    pthread_once(&choose_once, choose);
    return &chosen;
}

static size_t taken;
int take(size_t bytes) {
    pthread_mutex_lock(&lock);
    int fits = device()->bytes >= taken + bytes + context_bytes;
    if (fits) taken += bytes;
    pthread_mutex_unlock(&lock);
    return fits;
}
void give_back(size_t bytes) {
    pthread_mutex_lock(&lock);
    taken -= bytes;
    pthread_mutex_unlock(&lock);
}
size_t bytes_free(void) { return device()->bytes - context_bytes - taken; }

SHOWN cudaError_t cudaGetDeviceCount(int *n) { return *n = 1, DONE; }
SHOWN cudaError_t cudaGetDevice(int *d) { return *d = 0, DONE; }
SHOWN cudaError_t cudaSetDevice(int d) { return d ? cudaErrorInvalidDevice : DONE; }
SHOWN cudaError_t cudaDriverGetVersion(int *v) { return *v = 13000, DONE; }
SHOWN cudaError_t cudaRuntimeGetVersion(int *v) { return *v = CUDART_VERSION, DONE; }
SHOWN cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
    const struct device *g = device();
    *p = (struct cudaDeviceProp){
        .totalGlobalMem = g->bytes, .sharedMemPerBlock = 49152, .regsPerBlock = 65536, .warpSize = 32,
        .memPitch = INT32_MAX, .maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {INT32_MAX, 65535, 65535}, .totalConstMem = 65536, .major = g->major, .minor = g->minor,
        .textureAlignment = 512, .texturePitchAlignment = 32, .multiProcessorCount = g->multiprocessors,
        .canMapHostMemory = 1, .concurrentKernels = 1, .ECCEnabled = 1, .pciBusID = 1, .asyncEngineCount = 3,
        .unifiedAddressing = 1, .memoryBusWidth = g->bus_bits, .l2CacheSize = g->l2_bytes,
        .maxThreadsPerMultiProcessor = g->threads, .streamPrioritiesSupported = 1, .globalL1CacheSupported = 1,
        .localL1CacheSupported = 1, .sharedMemPerMultiprocessor = g->shared_bytes, .regsPerMultiprocessor = 65536,
        .managedMemory = 1, .concurrentManagedAccess = 1, .computePreemptionSupported = 1, .cooperativeLaunch = 1,
        .sharedMemPerBlockOptin = g->shared_optin, .maxBlocksPerMultiProcessor = g->blocks,
        .reservedSharedMemPerBlock = 1024, .memoryPoolsSupported = 1,
    };
    strcpy(p->name, g->name);
    memcpy(p->uuid.bytes, "no GPU: phantom!", 16);
    return DONE;
}
SHOWN cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr attribute, int d) {
    const struct device *g = device();
    const int values[][2] = {
        {cudaDevAttrMaxThreadsPerBlock, 1024}, {cudaDevAttrMaxBlockDimX, 1024}, {cudaDevAttrMaxBlockDimY, 1024},
        {cudaDevAttrMaxBlockDimZ, 64}, {cudaDevAttrMaxGridDimX, INT32_MAX}, {cudaDevAttrMaxGridDimY, 65535},
        {cudaDevAttrMaxGridDimZ, 65535}, {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
        {cudaDevAttrTotalConstantMemory, 65536}, {cudaDevAttrWarpSize, 32},
        {cudaDevAttrMaxRegistersPerBlock, 65536}, {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
        {cudaDevAttrClockRate, g->khz}, {cudaDevAttrMemoryClockRate, g->memory_khz},
        {cudaDevAttrMultiProcessorCount, g->multiprocessors}, {cudaDevAttrGlobalMemoryBusWidth, g->bus_bits},
        {cudaDevAttrL2CacheSize, g->l2_bytes}, {cudaDevAttrMaxThreadsPerMultiProcessor, g->threads},
        {cudaDevAttrComputeCapabilityMajor, g->major}, {cudaDevAttrComputeCapabilityMinor, g->minor},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, g->shared_bytes},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, g->shared_optin},
        {cudaDevAttrMaxBlocksPerMultiprocessor, g->blocks}, {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
        {cudaDevAttrConcurrentKernels, 1}, {cudaDevAttrUnifiedAddressing, 1}, {cudaDevAttrManagedMemory, 1},
        {cudaDevAttrStreamPrioritiesSupported, 1}, {cudaDevAttrComputePreemptionSupported, 1},
        {cudaDevAttrCooperativeLaunch, 1}, {cudaDevAttrMemoryPoolsSupported, 1},
    };
    *v = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][0] == (int)attribute) *v = values[i][1];
    return DONE;
}
SHOWN cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int d) {
    return snprintf(text, length, "0000:01:00.0"), DONE;
}
SHOWN cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return *least = 0, *greatest = -5, DONE;
}
SHOWN cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { return *can = 0, DONE; }
SHOWN const char *cudaGetErrorString(cudaError_t e) {
    return e == DONE ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" : "error of the stand-in";
}
SHOWN const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }

/* ---- memory ---- */

/* Ranges of addresses: of the device, from LAST down to FIRST as a driver's, and of pinned main memory. */
struct range {
    char *at;
    size_t bytes;
    struct range *next;
};
static struct range *on_device, *pinned;
static const uintptr_t FIRST = 0x100000000000, LAST = 0x500000000000;
static uintptr_t lowest_address = LAST;

static int is_of_device(const void *p) { return (uintptr_t)p >= FIRST && (uintptr_t)p < LAST; }

static void remember(struct range **list, void *at, size_t bytes) {
    struct range *added = malloc(sizeof *added);
    pthread_mutex_lock(&lock);
    *added = (struct range){at, bytes, *list};
    *list = added;
    pthread_mutex_unlock(&lock);
}
static size_t forget(struct range **list, const void *at) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (struct range **link = list; *link; link = &(*link)->next)
        if ((*link)->at == at) {
            struct range *found = *link;
            bytes = found->bytes;
            *link = found->next;
            free(found);
            break;
        }
    pthread_mutex_unlock(&lock);
    return bytes;
}

SHOWN cudaError_t cudaMalloc(void **p, size_t bytes) {
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    if (!take(bytes)) return cudaErrorMemoryAllocation;
    uintptr_t at = __atomic_sub_fetch(&lowest_address, bytes + PAGE, __ATOMIC_SEQ_CST);
    *p = mmap((void *)at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (*p == MAP_FAILED) abort();
    remember(&on_device, *p, bytes);
    return DONE;
}
SHOWN cudaError_t cudaFree(void *p) {
    size_t bytes = p ? forget(&on_device, p) : 0;
    if (bytes) give_back(bytes), munmap(p, bytes);
    return DONE;
}
SHOWN cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t s) { return cudaMalloc(p, bytes); }
SHOWN cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { return cudaFree(p); }
SHOWN cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) {
    return *unused = bytes_free(), *total = device()->bytes, DONE;
}
SHOWN cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    if (posix_memalign(p, 4096, bytes + !bytes)) return cudaErrorMemoryAllocation;
    return remember(&pinned, *p, bytes), DONE;
}
SHOWN cudaError_t cudaFreeHost(void *p) { return forget(&pinned, p), free(p), DONE; }
SHOWN cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    *a = (struct cudaPointerAttributes){.device = -1};
    if (is_of_device(p)) *a = (struct cudaPointerAttributes){.type = cudaMemoryTypeDevice, .devicePointer = (void *)p};
    pthread_mutex_lock(&lock);
    for (struct range *r = pinned; r; r = r->next)
        if ((char *)p >= r->at && (char *)p < r->at + r->bytes)
            *a = (struct cudaPointerAttributes){
                .type = cudaMemoryTypeHost, .devicePointer = (void *)p, .hostPointer = (void *)p};
    pthread_mutex_unlock(&lock);
    return DONE;
}
static cudaError_t copy(void *to, const void *from, size_t bytes) {
    if (bytes <= MIB || (!is_of_device(to) && !is_of_device(from))) memmove(to, from, bytes);
    else if (!is_of_device(to)) memset(to, 0, bytes);
    return DONE;
}
SHOWN cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind k) { return copy(to, from, n); }
SHOWN cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s) {
    return copy(to, from, n);
}
SHOWN cudaError_t cudaMemcpyPeerAsync(void *to, int d, const void *from, int e, size_t n, cudaStream_t s) {
    return copy(to, from, n);
}
SHOWN cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width,
                                    size_t height, enum cudaMemcpyKind k, cudaStream_t s) {
    for (size_t i = 0; i < height; i++) copy((char *)to + i * to_pitch, (const char *)from + i * pitch, width);
    return DONE;
}
SHOWN cudaError_t cudaMemset(void *p, int value, size_t n) { return n <= MIB ? memset(p, value, n), DONE : DONE; }
SHOWN cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) { return cudaMemset(p, value, n); }
SHOWN cudaError_t cudaGetSymbolAddress(void **p, const void *symbol) {
    static char variables[1 << 16];
    return *p = variables, DONE;
}

/* ---- streams and events: all is done when it is asked for ---- */

SHOWN cudaError_t cudaStreamCreate(cudaStream_t *s) { return *s = handle(), DONE; }
SHOWN cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) { return *s = handle(), DONE; }
SHOWN cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) { return *s = handle(), DONE; }
SHOWN cudaError_t cudaStreamDestroy(cudaStream_t s) { return free(s), DONE; }
SHOWN cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { return *p = 0, DONE; }
SHOWN cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *c) {
    return *c = cudaStreamCaptureStatusNone, DONE;
}
SHOWN cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *c, unsigned long long *id,
                                           cudaGraph_t *g, const cudaGraphNode_t **nodes,
                                           const cudaGraphEdgeData **edges, size_t *n) {
    if (id) *id = 0;
    if (n) *n = 0;
    return *c = cudaStreamCaptureStatusNone, DONE;
}
SHOWN cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *data, unsigned flags) {
    return f(s, DONE, data), DONE;
}
SHOWN cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) { return f(data), DONE; }
SHOWN cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = handle(), DONE; }
SHOWN cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) { return *e = handle(), DONE; }
SHOWN cudaError_t cudaEventDestroy(cudaEvent_t e) { return free(e), DONE; }
SHOWN cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    return clock_gettime(CLOCK_MONOTONIC, (struct timespec *)e), DONE;
}
SHOWN cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return cudaEventRecord(e, s); }
SHOWN cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    const struct timespec *a = (void *)from, *b = (void *)to;
    return *ms = 1e3f * (b->tv_sec - a->tv_sec) + 1e-6f * (b->tv_nsec - a->tv_nsec), DONE;
}

/* ---- kernels: configured, never run ---- */

static __thread struct launch {
    dim3 grid, block;
    size_t shared;
    void *stream;
} launches[8];
static __thread int depth;
SHOWN unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    launches[depth++ & 7] = (struct launch){grid, block, shared, stream};
    return 0;
}
SHOWN cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    const struct launch *last = &launches[--depth & 7];
    return *grid = last->grid, *block = last->block, *shared = last->shared, *(void **)stream = last->stream, DONE;
}
SHOWN void **__cudaRegisterFatBinary(void *binary) { return handle(); }
SHOWN char __cudaInitModule(void **module) { return 1; }
SHOWN cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *f) { return *k = (cudaKernel_t)f, DONE; }
SHOWN cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
    int version = device()->major * 10 + device()->minor;
    *a = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = 32, .ptxVersion = version,
                                     .binaryVersion = version, .maxDynamicSharedSizeBytes = 49152};
    return DONE;
}
SHOWN cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int threads,
                                                                         size_t shared, unsigned flags) {
    const struct device *g = device();
    int by_threads = g->threads / (threads > 0 ? threads : 1), by_shared = shared ? g->shared_bytes / (int)shared : 64;
    *n = by_threads < by_shared ? by_threads : by_shared;
    *n = *n > g->blocks ? g->blocks : *n < 1 ? 1 : *n;
    return DONE;
}
