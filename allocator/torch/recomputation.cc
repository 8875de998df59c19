#include "allocator/torch/recomputation.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>

namespace stalloc {
namespace {

// Functions of the torch in this process. Looked up, since tests link this code without libtorch_cpu.
struct Autograd {
  int (*backward_pass)() = nullptr;  // the number of this thread's; -1: it is in none
  const at::impl::SavedTensorDefaultHooksTLS& (*hooks)() = nullptr;
};

template <typename Function>
void Find(void* library, const char* symbol, Function* function) noexcept {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
}

Autograd FindAutograd() noexcept {
  Autograd found;
  if (void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD); torch != nullptr) {
    Find(torch, "_ZN5torch8autograd25get_current_graph_task_idEv", &found.backward_pass);
    Find(torch, "_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv", &found.hooks);
  }
  return found;
}

// For the backward pass that the thread was in last.
thread_local int t_pass = -1;
thread_local std::size_t t_own_hooks = 0;  // in place around it, as far as was seen

bool HasMoreHooksThanItsPass(const Autograd& autograd, int pass) noexcept {
  if (autograd.hooks == nullptr) return false;
  const std::size_t hooks = autograd.hooks().stack.size();
  t_own_hooks = pass == t_pass ? std::min(t_own_hooks, hooks) : hooks;
  t_pass = pass;
  return hooks > t_own_hooks;
}

}  // namespace

RunningPass PassOfThread() noexcept {
  static const Autograd autograd = FindAutograd();
  const int pass = autograd.backward_pass != nullptr ? autograd.backward_pass() : -1;
  if (pass == -1) return RunningPass::kOther;
  const bool again = HasMoreHooksThanItsPass(autograd, pass) || c10::GradMode::is_enabled();
  return again ? RunningPass::kForwardAgain : RunningPass::kBackward;
}

}  // namespace stalloc
