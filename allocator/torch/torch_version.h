// The torch version that this library was compiled against, and the check of the one that runs.
//
// The adapters are subclasses of torch's own classes: their virtual tables hold for one minor version only, and another
// one would call the wrong functions. So the check comes before anything else of torch is touched. That the headers
// were the same, too, is for the package to check, before it loads the library (patches/stalloc/core/interface.py).
#pragma once

#include <string_view>

#include "proto/model/result.h"

namespace stalloc {

// For example "2.11.0+cu130".
[[nodiscard]] const char* BuiltForTorch() noexcept;

// The version, and the fingerprint of the headers that the adapter is compiled into.
[[nodiscard]] const char* InterfaceClaim() noexcept;

// Fine when both name the same major and minor version. The error says what to do.
[[nodiscard]] Status CheckTorchVersion(std::string_view built_for, std::string_view running);

}  // namespace stalloc
