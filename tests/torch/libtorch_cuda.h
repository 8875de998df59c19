// libtorch_cuda.so in a test's process.
#pragma once

#include <dlfcn.h>

#include <string>

namespace stalloc {

// Loads the library of the torch that is built against, as `import torch` does. Returns why it cannot be, "" if it is
// there: its CUDA libraries may be absent.
inline std::string LoadLibtorchCuda() {
  Dl_info info;
  void* const c10 = dlsym(RTLD_DEFAULT, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
  if (c10 == nullptr || dladdr(c10, &info) == 0) return "libc10_cuda.so is not loaded";
  const std::string path = info.dli_fname;
  const std::string torch = path.substr(0, path.rfind('/')) + "/libtorch_cuda.so";
  return dlopen(torch.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr ? dlerror() : "";
}

}  // namespace stalloc
