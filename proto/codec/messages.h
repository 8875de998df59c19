// Between the generated messages and the value types. Private to proto/codec: nothing else sees generated code.
#pragma once

#include <string>

#include "proto/model/trace.h"
#include "proto/trace.pb.h"

namespace stalloc {

void ToMessage(const Fingerprint& fingerprint, proto::Fingerprint* message);
void ToMessage(const Mark& mark, proto::Mark* message);
void ToMessage(const StreamInfo& stream, proto::StreamInfo* message);

[[nodiscard]] Fingerprint FromMessage(const proto::Fingerprint& message);
[[nodiscard]] StreamInfo FromMessage(const proto::StreamInfo& message);
// The mark in `*mark`; empty, or which of its enumerations has a value that this version does not know.
[[nodiscard]] std::string FromMessage(const proto::Mark& message, Mark* mark);

}  // namespace stalloc
