// SignatureObserver: what a device adds to the run's signature (run_signature.h): the program's own requests.
#pragma once

#include "allocator/runtime/block_observer.h"
#include "allocator/runtime/ledger.h"
#include "allocator/runtime/run_signature.h"

namespace stalloc {

class SignatureObserver final : public BlockObserver {
 public:
  // Both outlive this.
  SignatureObserver(DeviceIndex device, RunSignature& signature, const Ledger& ledger) noexcept
      : BlockObserver(/*listens=*/true), device_(device), signature_(signature), ledger_(ledger) {}

  void Began(const BlockBegin& block) override {
    if (!signature_.open()) return Listen(false);
    if (block.origin != Origin::kProgram) return;
    signature_.Add(device_, block.requested, ledger_.live_bytes());
  }
  void Ends(const BlockEnd& /*block*/) noexcept override {}

 private:
  const DeviceIndex device_;
  RunSignature& signature_;
  const Ledger& ledger_;
};

}  // namespace stalloc
