// libstalloc.so as a program sees it that loads it: by dlopen, through stalloc.h's signatures.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "allocator/capi/stalloc.h"

namespace stalloc {

class StallocLibrary {
 public:
  explicit StallocLibrary(const std::string& path, int flags = RTLD_NOW | RTLD_GLOBAL)
      : handle_(dlopen(path.c_str(), flags)) {
    if (handle_ != nullptr) return;
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }

  // The address of `function`, typed by the declaration in stalloc.h.
  template <typename Function>
  [[nodiscard]] Function* Find(const char* name, Function*) const {
    void* const address = dlsym(handle_, name);
    if (address == nullptr) {
      std::fprintf(stderr, "no %s\n", name);
      std::abort();
    }
    return reinterpret_cast<Function*>(address);
  }

 private:
  void* handle_;
};

#define STALLOC_FIND(library, name) (library).Find(#name, static_cast<decltype(&name)>(nullptr))

}  // namespace stalloc
