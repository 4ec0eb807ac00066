/* Counts the bytes that torch's CPU allocator holds: LD_PRELOAD=./malloc_counter.so python ...

   torch asks for memory by posix_memalign (or aligned_alloc) in libc10.so, and for exactly the bytes of a
   storage. Calls from other libraries are passed on uncounted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (1u << 20)
#define CALLERS 256

static struct { void *at; size_t size; } blocks[SLOTS]; /* linear probing */
static struct { void *at; int counts; } callers[CALLERS];
static int64_t live, peak;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*real_free)(void *);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);

static uint32_t slot_of(void *at) {
    return (uint32_t)(((uintptr_t)at >> 4) * 0x9E3779B97F4A7C15ull >> 44) & (SLOTS - 1);
}

static int is_torch(void *caller) {
    uint32_t slot = ((uintptr_t)caller >> 2) % CALLERS;
    Dl_info info;
    if (callers[slot].at == caller) return callers[slot].counts;
    int counts = dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libc10.so") != NULL;
    callers[slot].at = caller;
    callers[slot].counts = counts;
    return counts;
}

static void add(void *at, size_t size) {
    uint32_t slot = slot_of(at);
    while (blocks[slot].at) slot = (slot + 1) & (SLOTS - 1);
    blocks[slot].at = at;
    blocks[slot].size = size;
    live += (int64_t)size;
    if (live > peak) peak = live;
}

static void take_out(void *at) {
    uint32_t slot = slot_of(at);
    while (blocks[slot].at != at) {
        if (!blocks[slot].at) return;
        slot = (slot + 1) & (SLOTS - 1);
    }
    live -= (int64_t)blocks[slot].size;
    blocks[slot].at = NULL;
    for (uint32_t next = (slot + 1) & (SLOTS - 1); blocks[next].at; next = (next + 1) & (SLOTS - 1)) {
        uint32_t home = slot_of(blocks[next].at); /* close the gap where the probing went across it */
        if (((next - home) & (SLOTS - 1)) >= ((next - slot) & (SLOTS - 1))) {
            blocks[slot] = blocks[next];
            blocks[next].at = NULL;
            slot = next;
        }
    }
}

static void *count(void *at, size_t size, void *caller) {
    if (at) {
        pthread_mutex_lock(&lock);
        if (is_torch(caller)) add(at, size);
        pthread_mutex_unlock(&lock);
    }
    return at;
}

int posix_memalign(void **at, size_t alignment, size_t size) {
    if (!real_posix_memalign) real_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    int error = real_posix_memalign(at, alignment, size);
    if (!error) count(*at, size, __builtin_return_address(0));
    return error;
}

void *aligned_alloc(size_t alignment, size_t size) {
    if (!real_aligned_alloc) real_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    return count(real_aligned_alloc(alignment, size), size, __builtin_return_address(0));
}

void free(void *at) {
    if (!real_free) real_free = dlsym(RTLD_NEXT, "free");
    if (at) {
        pthread_mutex_lock(&lock);
        take_out(at);
        pthread_mutex_unlock(&lock);
    }
    real_free(at);
}

/* Return the peak in bytes since the last call, and begin anew from what is held now. */
int64_t take_peak(void) {
    pthread_mutex_lock(&lock);
    int64_t taken = peak;
    peak = live;
    pthread_mutex_unlock(&lock);
    return taken;
}
