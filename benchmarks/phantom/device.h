/* The GPU that is not there: its figures, and what the parts of the stand-in share. */
#pragma once
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))
#define MIB ((size_t)1 << 20)
#define PAGE (2 * MIB) /* of a device's memory */

struct device {
    const char *key, *name;
    int major, minor, multiprocessors, threads, blocks, shared_bytes, shared_optin, l2_bytes, bus_bits, khz, memory_khz;
    size_t bytes;
};
const struct device *device(void);

/* Counts bytes of the device as taken or given back; false if there are not so many. */
int take(size_t bytes);
void give_back(size_t bytes);
size_t bytes_free(void);

/* Something for a handle to point to. */
static inline void *handle(void) { return calloc(1, 64); }
