/* stalloc.h: the C ABI of libstalloc.so and of the torch adapter. All a training process sees of either.
 *
 * stalloc_malloc and stalloc_free have the signature of torch.cuda.memory.CUDAPluggableAllocator. Everything is
 * thread-safe. Strings are UTF-8. The ABI grows by new functions only; stalloc_abi_version says which exist.
 * Nothing but stalloc_malloc lets a C++ exception out. The four functions over CUDA memory are in libstalloc.so alone:
 * the torch adapter is an allocator of torch's already.
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

#define STALLOC_ABI_VERSION 8

STALLOC_API int stalloc_abi_version(void);
STALLOC_API const char* stalloc_version(void);

/* Reads STALLOC_* and opens the session; later calls return the first one's result. 0: fine (also when degraded to an
 * unplanned run); else see stalloc_last_error. stalloc_malloc calls it by itself. */
STALLOC_API int stalloc_init(void);
/* The last error of this thread; never null. Valid until the thread's next call. */
STALLOC_API const char* stalloc_last_error(void);

/* CUDA memory, from the plan's arena or the driver's stream-ordered pool. Null for 0 bytes.
 *
 * When there is no memory (or no driver, or a bad STALLOC_*) it throws an exception derived from std::bad_alloc with
 * the reason in what(): its C++ caller, CUDAPluggableAllocator, stores a null pointer without looking at it, and the
 * tensor's kernels would fault or corrupt memory later. torch makes the exception a RuntimeError with that text.
 * From C use stalloc_try_malloc. */
STALLOC_API void* stalloc_malloc(ssize_t bytes, int device, void* stream);
/* The same, but null with stalloc_last_error set in the place of an exception. */
STALLOC_API void* stalloc_try_malloc(ssize_t bytes, int device, void* stream);
/* Null is fine. bytes and stream are not looked at. */
STALLOC_API void stalloc_free(void* pointer, ssize_t bytes, int device, void* stream);
/* The block is used on `stream` too: its memory is not given out again before that stream has come to where it is now,
 * seen from the moment of the free. */
STALLOC_API void stalloc_record_stream(void* pointer, void* stream);

/* kind, edge, pass: the numbers of MarkKind, MarkEdge, Pass in proto/trace.proto; others are ignored with an error.
 * name may be null. automatic: 0 or 1. Before stalloc_init it does nothing. */
STALLOC_API void stalloc_mark(int kind, int edge, int pass, int chunk, int index, const char* name, int automatic);

/* Writes StatsJson and a NUL into buffer if it fits; returns the length needed without the NUL. "{}" before
 * stalloc_init. */
STALLOC_API size_t stalloc_stats_json(char* buffer, size_t capacity);

/* Events to the file, summary to its file. 0: fine. */
STALLOC_API int stalloc_flush(void);

/* Since ABI 2. Ends the trace in order, so that a run that goes on is not recorded to its end; the summary is written
 * as by stalloc_flush. 0: fine, also where nothing is traced. */
STALLOC_API int stalloc_stop_trace(void);

/* Since ABI 3. Begins a trace that waits (STALLOC_TRACE_STEPS): blocks that are live are its first rows. 0: fine, also
 * where it has begun or nothing is traced. */
STALLOC_API int stalloc_start_trace(void);

/* Since ABI 4. STALLOC_MODE=Auto: takes the plan in the file up, between two iterations, on the thread of the loop. 0:
 * fine; else nothing has changed. */
STALLOC_API int stalloc_take_plan(const char* path);

/* Since ABI 6. Does beforehand what stalloc_take_plan needs of that file: on any thread, while the loop goes on, for a
 * second where a plan has 100,000 requests. 0: fine; else stalloc_take_plan tries it again. */
STALLOC_API int stalloc_prepare_plan(const char* path);

/* Since ABI 5. STALLOC_MODE=Auto: traces requests into the file from now on; blocks that are live already are
 * not in it. 0: fine; else nothing is traced. */
STALLOC_API int stalloc_trace_again(const char* path);

/* Since ABI 8. STALLOC_MODE=Auto, as stalloc_stats_json: which sizes the run has requested in its set-up and its first
 * iterations (RunSignature::Json), until its trace is stopped. "{}" in other modes. */
STALLOC_API size_t stalloc_signature_json(char* buffer, size_t capacity);
/* Since ABI 8. STALLOC_MODE=Auto: the plan that serves is another run's, and serves no more. What lives in its arena
 * stays where it is, what is idle goes back to the device. Between two iterations, on the thread of the loop. */
STALLOC_API void stalloc_drop_plan(void);
/* Since ABI 8. STALLOC_MODE=Auto: the summary of this run goes to this directory, not to STALLOC_MODEL_INFO_PATH. */
STALLOC_API void stalloc_move_run(const char* directory);

/* Since ABI 3. The number of a text, for stalloc_name_tensor and stalloc_layer_input; equal texts have one. -1 where
 * nothing is traced, or on an error. */
STALLOC_API int64_t stalloc_text(const char* text);
/* Since ABI 3. A tensor of `bytes` bytes (0: not known) lies `offset` bytes after the begin of the live block `block`;
 * its name is the text of that number. role: the numbers of TensorRole in proto/trace.proto; others are ignored with an
 * error. Nothing where no block begins there, or it is known already. */
STALLOC_API void stalloc_name_tensor(const void* block, uint64_t offset, uint64_t bytes, int role, int64_t text);

/* Since ABI 7. The layer whose name is the text of that number has been called with the live block that begins at
 * `block`; before the mark that ends its forward pass. Nothing where no block begins there. */
STALLOC_API void stalloc_layer_input(const void* block, int64_t text);

/* Since ABI 5. `listener` is called with the path of each report of an out-of-memory error (STALLOC_OOM_REPORT), once
 * it is written, on the thread whose request failed; it may add to the file. Null: nobody is notified. */
STALLOC_API void stalloc_tell_oom_reports(void (*listener)(const char* path));

/* Since ABI 8. Nothing is printed from now on: the program's last word has been said. */
STALLOC_API void stalloc_silence(void);

/* Since ABI 6: sleep and wake (docs/sleep.md).
 *
 * What lives in the arena of a device goes to the host, or nowhere, and its memory back to the device; addresses stay.
 * Nobody may use a block that sleeps, and no capture may be open. `device`: an index, STALLOC_CPU_DEVICE or
 * STALLOC_ALL_DEVICES. `tags`: names of regions, "" for what was allocated in none; null: everything, and then requests
 * of 256 KiB and more fail before the next wake. `keep`: names of those whose bytes are kept; null: as their regions
 * say. 0: fine; else stalloc_last_error, and nothing has changed. From any thread; one at a time. */
#define STALLOC_CPU_DEVICE (-1)
#define STALLOC_ALL_DEVICES (-2)
STALLOC_API int stalloc_sleep(int device, const char* const* tags, size_t tag_count, const char* const* keep,
                              size_t keep_count);
STALLOC_API int stalloc_wake(int device, const char* const* tags, size_t tag_count);
/* What this thread's last sleep or wake did, as stalloc_stats_json. */
STALLOC_API size_t stalloc_sleep_json(char* buffer, size_t capacity);
/* The number of a region's tag, at least 1; `keep` 0: its bytes are dropped by a sleep that does not name what is kept.
 * -1: an error, as of more than 127 of them. */
STALLOC_API int stalloc_region_tag(const char* name, int keep);
/* What this thread allocates from now on has the tag; 0: none; STALLOC_OUTSIDE: it is not of the arena, and so serves
 * while everything sleeps. Returns the one before. */
#define STALLOC_OUTSIDE (-1)
STALLOC_API int stalloc_enter_region(int tag);
/* Copies bytes of a block that sleeps, by its address, from the host's memory. 0: fine; else they are not there. */
STALLOC_API int stalloc_read_asleep(const void* address, uint64_t bytes, void* to);
/* Takes page-locked memory of the host now, that the first sleep would take. 0: fine. */
STALLOC_API int stalloc_reserve_host_pool(int device, uint64_t bytes);
/* Gives back what no sleeping block needs; bytes. */
STALLOC_API uint64_t stalloc_release_host_pools(void);

#ifdef __cplusplus
}
#endif

#endif /* STALLOC_CAPI_STALLOC_H_ */
