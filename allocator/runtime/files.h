// The few things that a run does with files: make a directory, write a small file so that readers see all of it or
// none.
#pragma once

#include <string>

#include "proto/model/result.h"

namespace stalloc {

// Makes the directory that `path` lies in, with all above it. The error names the one that could not be made.
[[nodiscard]] Status MakeParentDirectories(const std::string& path);

// Writes `text` under a temporary name next to `path` and renames it. On an error no file remains.
[[nodiscard]] Status WriteFileAtomically(const std::string& path, const std::string& text);

}  // namespace stalloc
