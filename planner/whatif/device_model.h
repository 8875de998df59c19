// Seconds of a step from what the device did in steps of several sizes (rank00000.steps.json). Pure.
//
// A micro-batch is a row of parts, each as long as the host takes for it or the device, whichever is longer: the host
// is ahead by no more than a part, so that it bounds short micro-batches between long ones. What the host takes is
// taken to be the same whatever the size; what the device takes is the sum over its kernels, by name (terms.h). One
// that communicates waits for other ranks, too, which makes it longer and never shorter.
//
// Where the program waits for the device, the host's work comes after the device's, and both count: the gap of a part.
// It is what the device idles in large steps, in parts that grow with their work. What untraced steps of all sizes take
// beyond their parts comes once a step, before its first kernel: batches are loaded. That is the lead.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/whatif/terms.h"

namespace stalloc::planner {

struct KernelTime {
  double seconds = 0;  // for which the device was busy
  double launches = 0;
};
using KernelTimes = std::map<std::string, KernelTime>;

struct WatchedStep {
  Load load;
  std::vector<double> seconds;    // by part
  std::vector<KernelTimes> busy;  // by part

  // For all parts.
  [[nodiscard]] KernelTimes Whole() const;
  // Each kernel took as long as on the rank where it took least: others waited, or had lower clocks. `others`: what
  // other ranks did in this step; one that did not do the same says nothing.
  [[nodiscard]] WatchedStep Least(const std::vector<WatchedStep>& others) const;
};

class DeviceModel {
 public:
  // Absent where the steps' sizes are one, or there is none. `free`: steps that nothing watched. Watching makes the
  // host slower, chance a part of it faster: it is as slow as half of these show; as the large ones do where it bounds
  // them.
  [[nodiscard]] static std::optional<DeviceModel> FromSteps(const std::vector<WatchedStep>& steps,
                                                            const std::vector<Timed>& free);

  // A step. `again`: of what is recomputed: where the device has most to do, there are the passes.
  [[nodiscard]] double Seconds(const Load& load, const Terms& again = {}) const;
  // For a step, 0 to 1: of the parts that the host bounds, gaps and the lead.
  [[nodiscard]] double HostShare(const Load& load) const;
  // Seconds of a step before its first kernel. They are in Seconds.
  [[nodiscard]] double lead() const { return lead_; }
  // Micro-batches of the steps that were watched.
  [[nodiscard]] double count() const { return count_; }

 private:
  struct Part {
    double host = 0;  // seconds of a step
    double gap = 0;   // the same
    Terms device;
  };
  [[nodiscard]] double MicroBatch(const Load::Part& one, const Terms& again) const;
  [[nodiscard]] DeviceModel Slower(double times) const;
  [[nodiscard]] double LeadOf(const std::vector<Timed>& free) const;
  [[nodiscard]] std::vector<Timed> Informative(const std::vector<Timed>& free) const;
  [[nodiscard]] double HowSlow(const std::vector<Timed>& free) const;

  double count_ = 0;
  double lead_ = 0;
  std::vector<Part> parts_;
};

// Whether attention takes the packed rows of a micro-batch for one, by what the device did in steps of two traces with
// different numbers of rows: which explains better how long those kernels took that grow faster than tokens. The loads
// of `together` have the squares of micro-batches' tokens, those of `apart`, the same steps, of their rows' lengths.
// False if nothing shows it.
[[nodiscard]] bool AreTogether(const std::vector<WatchedStep>& together, const std::vector<WatchedStep>& apart);

}  // namespace stalloc::planner
