/* Stands in for NVML: one device without links or processes. Expandable segments ask it. */
#include <stddef.h>
#define SHOWN __attribute__((visibility("default")))
enum { NOT_SUPPORTED = 3 };
static void *const DEVICE = (void *)1;
SHOWN int nvmlInit_v2(void) { return 0; }
SHOWN int nvmlShutdown(void) { return 0; }
SHOWN int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **d) { return *d = DEVICE, 0; }
SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { return *d = DEVICE, 0; }
SHOWN int nvmlDeviceGetCount_v2(unsigned *n) { return *n = 1, 0; }
SHOWN int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned link, int *type) { return NOT_SUPPORTED; }
SHOWN int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned link, void *info) { return NOT_SUPPORTED; }
SHOWN int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, void *info) { return *n = 0, 0; }
SHOWN int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *info) { return *n = 0, 0; }
SHOWN int nvmlSystemGetCudaDriverVersion_v2(int *v) { return *v = 13000, 0; }
SHOWN int nvmlDeviceGetGpuFabricInfoV(void *d, void *info) { return 0; }
SHOWN int nvmlDeviceGetGpuFabricInfo(void *d, void *info) { return NOT_SUPPORTED; }
