// Included before protozero, everywhere: its assertions throw, in every build.
//
// protozero asserts that a field has the wire type that it is read as. That is a property of the file, not of this
// program, so a failure must be an error for the reader and never an abort. Same definition in all translation units
// (one definition rule).
#pragma once

#include <stdexcept>

namespace stalloc {

struct ProtozeroAssertion : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace stalloc

#define protozero_assert(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : throw ::stalloc::ProtozeroAssertion("unexpected wire type"))
