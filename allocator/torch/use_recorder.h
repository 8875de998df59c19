// Which operations use which blocks (STALLOC_TRACE_USES=1), for a trace: see BlockUses in proto/trace.proto.
//
// torch calls back at the beginning and the end of every operation that goes through its dispatcher, on every thread,
// so also in the backward pass, whose operations run on threads of autograd's for CUDA. Arguments count at both ends,
// results at the end. Nothing is kept alive, and no device memory is touched or requested.
//
// Not a use: what looks at a tensor's shape alone (views, empty_like, size). Not seen: kernels that no operation of
// the dispatcher launches (Triton's, those of an extension's own functions), what torch.compile has generated, and the
// replay of CUDA graphs. Of a Python autograd.Function its arguments are seen, and its gradients in the backward pass.
#pragma once

#include <c10/core/DeviceType.h>

#include "allocator/runtime/session.h"

namespace stalloc {

// For blocks of that type of device, from now on and for the life of the process. Once. The session must outlive it.
void RecordUses(Session* session, c10::DeviceType device);

}  // namespace stalloc
