// protobuf 3 writes a line on standard error for each string that is no UTF-8, thousands of them under a fuzzer.
#pragma once

#include <google/protobuf/stubs/common.h>
#if GOOGLE_PROTOBUF_VERSION < 4022000
#include <google/protobuf/stubs/logging.h>
#endif

namespace stalloc::fuzz {

inline bool QuietProtobuf() {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  google::protobuf::SetLogHandler(nullptr);
#endif
  return true;
}

}  // namespace stalloc::fuzz
