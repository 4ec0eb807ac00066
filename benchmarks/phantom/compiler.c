/* Stands in for NVRTC: compiles nothing. cuDNN asks it for kernels while it plans. */
#include <stddef.h>
#include <string.h>
#include <stdlib.h>
#define SHOWN __attribute__((visibility("default")))
#define SIZE(name) SHOWN int name(void *program, size_t *size) { return *size = 64, 0; }
#define TEXT(name) SHOWN int name(void *program, char *text) { return memset(text, 0, 64), 0; }
SHOWN int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0; }
SHOWN int nvrtcCreateProgram(void **made) { return *made = calloc(1, 64), 0; }
SHOWN int nvrtcDestroyProgram(void **program) { return free(*program), *program = 0, 0; }
SIZE(nvrtcGetPTXSize)
TEXT(nvrtcGetPTX)
SIZE(nvrtcGetCUBINSize)
TEXT(nvrtcGetCUBIN)
SIZE(nvrtcGetLTOIRSize)
TEXT(nvrtcGetLTOIR)
SIZE(nvrtcGetProgramLogSize)
TEXT(nvrtcGetProgramLog)
SHOWN int nvrtcGetLoweredName(void *program, const char *name, const char **lowered) { return *lowered = name, 0; }
SHOWN int nvrtcGetNumSupportedArchs(int *n) { return *n = 1, 0; }
SHOWN int nvrtcGetSupportedArchs(int *a) { return *a = 90, 0; }
SHOWN const char *nvrtcGetErrorString(int e) { return "error of the stand-in"; }
