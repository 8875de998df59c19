/* stalloc_torch.h: what libstalloc_torch.so exports in addition to stalloc.h: installing under PyTorch.
 *
 * Call after `import torch` and before CUDA is initialised. The library is built for one minor version of torch and
 * refuses others.
 */
#ifndef STALLOC_TORCH_STALLOC_TORCH_H_
#define STALLOC_TORCH_STALLOC_TORCH_H_

#include "allocator/capi/stalloc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The torch version this library was built for, e.g. "2.11.0". */
STALLOC_API const char* stalloc_torch_built_for(void);
/* That version and the fingerprint of the headers it was compiled against, in words that the package reads. */
STALLOC_API const char* stalloc_torch_interface(void);
/* 1 if this build has the CUDA adapter. */
STALLOC_API int stalloc_torch_has_cuda(void);
/* Replaces the CUDA caching allocator by ours over it. 0: installed. Else stalloc_last_error says why (CUDA initialised
 * already, another allocator installed, torch version). `running_torch`: torch.__version__ of the process. */
STALLOC_API int stalloc_torch_install_cuda(const char* running_torch);
/* The same for c10's CPU allocator. */
STALLOC_API int stalloc_torch_install_cpu(const char* running_torch);

/* Why this thread's last launch of a CUDA graph was refused, in words, once for each; "": none was since. Valid until
 * its next refusal. */
STALLOC_API const char* stalloc_graph_error(void);
/* Which CUDA graphs' pools are followed (allocator/torch/graph_figures.h), as stalloc_stats_json. */
STALLOC_API size_t stalloc_graphs_json(char* buffer, size_t capacity);
/* Bytes of devices that no allocator of the process counts, by cause, likewise. */
STALLOC_API size_t stalloc_uncounted_json(char* buffer, size_t capacity);

/* For traces of fake tensors: a device without memory, -1 for the CPU, else the index of a GPU. 0: installed. */
STALLOC_API int stalloc_torch_install_fake(const char* running_torch, int device);
/* A request to it, as traced. The address names the block and is not to be read; null for 0 bytes. Call neither before
 * the device is installed. */
STALLOC_API void* stalloc_torch_fake_allocate(size_t bytes, uint64_t stream);
STALLOC_API void stalloc_torch_fake_record_stream(void* block, uint64_t stream);
STALLOC_API void stalloc_torch_fake_free(void* block);

#ifdef __cplusplus
}
#endif

#endif /* STALLOC_TORCH_STALLOC_TORCH_H_ */
