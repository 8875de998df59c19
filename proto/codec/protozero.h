// protozero, with assertions that throw in every build. Included instead of its own headers, so that all translation
// units agree (one definition rule). Private to proto/codec.
//
// protozero asserts that a field has the wire type that it is read as. That is a property of the file, not of this
// program: a failure must be an error for the reader and never an abort.
#pragma once

#include <stdexcept>

namespace stalloc {

struct ProtozeroAssertion : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace stalloc

#define protozero_assert(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : throw ::stalloc::ProtozeroAssertion("unexpected wire type"))

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
