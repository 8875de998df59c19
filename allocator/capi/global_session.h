// The one session of this process, as both libraries (libstalloc.so, libstalloc_torch.so) reach it through stalloc.h.
//
// Thread-safe. Created once, never destroyed: frees arrive until the process is gone.
#pragma once

#include "allocator/capi/last_error.h"
#include "allocator/runtime/session.h"

namespace stalloc {

// Null before OpenGlobalSession succeeded. Lock-free.
[[nodiscard]] Session* GlobalSession() noexcept;

// Reads STALLOC_* and the ranks from the environment, opens the session and installs it; the first call decides, later
// calls return its result. `known`: what the adapter knows of the fingerprint (torch version); the command line is
// filled in here. In Mode::kTorch the session exists and does nothing: look at config().mode before installing
// anything.
[[nodiscard]] Result<Session*> OpenGlobalSession(const Fingerprint& known);

}  // namespace stalloc
