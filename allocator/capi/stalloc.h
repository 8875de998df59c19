/* stalloc.h: the C ABI of libstalloc.so and of the torch adapter. All a training process sees of either.
 *
 * stalloc_malloc and stalloc_free have the signature of torch.cuda.memory.CUDAPluggableAllocator. Everything is thread-safe.
 * Strings are UTF-8. The ABI grows by new functions only; stalloc_abi_version tells which are there.
 */
#ifndef STALLOC_CAPI_STALLOC_H_
#define STALLOC_CAPI_STALLOC_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__GNUC__)
#define STALLOC_API __attribute__((visibility("default")))
#else
#define STALLOC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define STALLOC_ABI_VERSION 1

STALLOC_API int stalloc_abi_version(void);
STALLOC_API const char* stalloc_version(void);

/* Reads STALLOC_* and opens the session; later calls do nothing. 0: fine (also when degraded to an unplanned run); else see
 * stalloc_last_error. stalloc_malloc calls it by itself. */
STALLOC_API int stalloc_init(void);
/* The last error of this thread; never null. Valid until the thread's next call. */
STALLOC_API const char* stalloc_last_error(void);

/* CUDA memory, from the plan's arena or the driver's stream-ordered pool. Null when out of memory or on error. */
STALLOC_API void* stalloc_malloc(ssize_t bytes, int device, void* stream);
STALLOC_API void stalloc_free(void* pointer, ssize_t bytes, int device, void* stream);
STALLOC_API void stalloc_record_stream(void* pointer, void* stream);

/* kind, edge, pass: the numbers of MarkKind, MarkEdge, Pass in proto/trace.proto. name may be null. automatic: 0 or 1. */
STALLOC_API void stalloc_mark(int kind, int edge, int pass, int chunk, int index, const char* name, int automatic);

/* Writes StatsJson and a NUL into buffer if it fits; returns the length needed without the NUL. */
STALLOC_API size_t stalloc_stats_json(char* buffer, size_t capacity);

/* Events to the file, summary to its file. 0: fine. */
STALLOC_API int stalloc_flush(void);

#ifdef __cplusplus
}
#endif

#endif  /* STALLOC_CAPI_STALLOC_H_ */
