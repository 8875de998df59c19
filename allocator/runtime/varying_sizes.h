// VaryingSizes: which sizes a run may request that its plan has not seen: those like the plan's sizes that vary.
//
// How many tokens an expert gets differs in every iteration, and so do its blocks: a size that lies between half the
// least and twice the largest of an entry whose size varies, or that is not always there, is no sign of another model.
// Built when a plan is loaded; read-only and thread-safe afterwards. Bytes, as requested.
#pragma once

#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class VaryingSizes {
 public:
  explicit VaryingSizes(const DevicePlan& plan);
  [[nodiscard]] bool Contain(Bytes requested) const noexcept;

 private:
  struct Range {
    Bytes least = 0;
    Bytes most = 0;
  };
  std::vector<Range> ranges_;  // ascending, disjoint
};

}  // namespace stalloc
