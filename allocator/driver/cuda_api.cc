#include "allocator/driver/cuda_api.h"

#include <dlfcn.h>

#include <cstdio>

namespace stalloc::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

struct LoadedApi {
  Api api;
  char error[256] = "";
  bool ok = false;

  LoadedApi() noexcept { ok = Api::Load(kLibrary, &api, error, sizeof(error)); }
};

// Never destroyed: frees arrive from static destructors of other libraries.
const LoadedApi& Loaded() noexcept {
  static const LoadedApi* loaded = new LoadedApi();
  return *loaded;
}

}  // namespace

const Api* Api::Get() noexcept { return Loaded().ok ? &Loaded().api : nullptr; }

const char* Api::LoadError() noexcept { return Loaded().error; }

bool Api::Load(const char* library, Api* api, char* error, std::size_t error_bytes) noexcept {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    std::snprintf(error, error_bytes, "cannot load the CUDA driver: %s", reason == nullptr ? library : reason);
    return false;
  }
  Api found;
  const char* missing = nullptr;
#define STALLOC_CUDA_RESOLVE(member, symbol, parameters)                          \
  found.member = reinterpret_cast<decltype(found.member)>(dlsym(handle, symbol)); \
  if (found.member == nullptr && missing == nullptr) {                            \
    missing = symbol;                                                             \
  }
  STALLOC_CUDA_FUNCTIONS(STALLOC_CUDA_RESOLVE)
#undef STALLOC_CUDA_RESOLVE
#define STALLOC_CUDA_RESOLVE(member, symbol, parameters) \
  found.member = reinterpret_cast<decltype(found.member)>(dlsym(handle, symbol));
  STALLOC_CUDA_OPTIONAL_FUNCTIONS(STALLOC_CUDA_RESOLVE)
#undef STALLOC_CUDA_RESOLVE
  if (missing != nullptr) {
    std::snprintf(error, error_bytes, "the CUDA driver %s has no %s: it is older than CUDA 11.3", library, missing);
    dlclose(handle);
    return false;
  }
  *api = found;
  if (error_bytes > 0) {
    error[0] = '\0';
  }
  return true;
}

const char* ErrorName(const Api& api, Result result) noexcept {
  const char* name = nullptr;
  return api.GetErrorName(result, &name) == kSuccess && name != nullptr ? name : "unknown CUDA error";
}

DriverStatus ToStatus(Result result, const char* call) noexcept {
  switch (result) {
    case kSuccess:
      return {};
    case kErrorOutOfMemory:
      return {DriverCode::kOutOfMemory, result, call};
    case kErrorInvalidValue:
    case kErrorInvalidHandle:
    case kErrorAlreadyMapped:
      return {DriverCode::kInvalid, result, call};
    case kErrorNoDevice:
    case kErrorInvalidDevice:
    case kErrorStubLibrary:
      return {DriverCode::kUnavailable, result, call};
    case kErrorNotInitialized:  // a forked child of a process that had initialised the driver
    case kErrorDeinitialized:
    case kErrorContextIsDestroyed:
      return {DriverCode::kShuttingDown, result, call};
    default:
      return {DriverCode::kFailed, result, call};
  }
}

RelaxedCaptureScope::RelaxedCaptureScope(const Api& api) noexcept : api_(api) {
  if (api_.ThreadExchangeStreamCaptureMode(&mode_) != kSuccess) {
    mode_ = kCaptureModeGlobal;  // the mode of every thread that has not requested another
  }
}

RelaxedCaptureScope::~RelaxedCaptureScope() { (void)api_.ThreadExchangeStreamCaptureMode(&mode_); }

ContextScope::ContextScope(const Api& api, Context context) noexcept : api_(api) {
  Context current = nullptr;
  result_ = api_.CtxGetCurrent(&current);
  if (result_ == kSuccess && current != context) {
    result_ = api_.CtxPushCurrent(context);
    pushed_ = result_ == kSuccess;
  }
}

ContextScope::~ContextScope() {
  if (pushed_) {
    Context popped = nullptr;
    (void)api_.CtxPopCurrent(&popped);
  }
}

}  // namespace stalloc::cuda
