#include "allocator/runtime/out_of_memory.h"

#include <algorithm>
#include <cstdint>

#include "allocator/runtime/human_bytes.h"

namespace stalloc {
namespace {

std::string Human(Bytes bytes) { return HumanBytes(bytes).text; }

Bytes LessOrZero(Bytes from, Bytes part) { return from - std::min(from, part); }

// The largest free range between the blocks (ascending) that is mapped in one piece.
Bytes LargestIdle(const std::vector<Arena::Range>& chunks, const std::vector<LiveBlock>& blocks) {
  Bytes largest = 0;
  Offset from = 0;  // nothing lies between here and `end`
  Offset end = 0;
  auto block = blocks.begin();
  for (const Arena::Range& chunk : chunks) {
    if (chunk.offset != end) from = chunk.offset;
    end = chunk.offset + chunk.bytes;
    for (; block != blocks.end() && block->offset < end; ++block) {
      if (block->offset > from) largest = std::max(largest, block->offset - from);
      from = std::max(from, block->offset + block->bytes);
    }
    if (end > from) largest = std::max(largest, end - from);
  }
  return largest;
}

std::string ArenaLine(const OutOfMemoryFacts& facts) {
  const RuntimeStats& stats = facts.stats;
  const Bytes idle = LessOrZero(stats.arena_bytes, stats.arena_live_bytes + stats.engine.pending_bytes);
  std::string line = "stalloc: the plan's arena holds " + Human(stats.arena_bytes) +
                     " of this device, not part of PyTorch's figures above: " + Human(stats.arena_live_bytes) + " in " +
                     std::to_string(stats.engine.live_blocks) + " live blocks, " + Human(idle) +
                     " idle between them (" + Human(LargestIdle(facts.arena->Chunks(), facts.engine->LiveBlocks())) +
                     " in one piece)";
  if (stats.engine.pending_bytes > 0) {
    line += ", " + Human(stats.engine.pending_bytes) + " freed but in use by other streams";
  }
  if (stats.lent.lent_bytes > 0) line += "; " + Human(stats.lent.lent_bytes) + " of it was given back to the device";
  return line;
}

std::string MissLine(const RuntimeStats& stats) {
  std::string reasons;
  std::uint64_t misses = 0;
  for (std::size_t i = 1; i < stats.engine.misses.size(); ++i) {
    if (stats.engine.misses[i] == 0) continue;
    misses += stats.engine.misses[i];
    reasons += (reasons.empty() ? "" : ", ") + std::string(MissReasonName(static_cast<MissReason>(i))) + " " +
               std::to_string(stats.engine.misses[i]);
  }
  return std::to_string(stats.planned_hits) + " of " + std::to_string(stats.requests) +
         " requests were served from the plan" +
         (misses == 0 ? "" : ", " + std::to_string(misses) + " were not (" + reasons + ")");
}

std::string PlanLine(const OutOfMemoryFacts& facts) {
  std::string line = "Plan: this run requested " + Human(facts.requested);
  const Script* const script = facts.position.in_script ? ScriptOf(*facts.plan, facts.position.script) : nullptr;
  if (const Entry* expected = ExpectedEntry(facts); expected != nullptr) {
    line += ", the plan expects " + Human(expected->bytes) + " next (request " +
            std::to_string(facts.position.entry + 1) + " of " + std::to_string(script->entries.size()) +
            (facts.position.in_sync ? ")" : "; the run is not in step with it)");
  } else {
    line += ", the plan expects nothing more here";
  }
  line += " in iteration " + std::to_string(facts.position.iterations) + "; " + MissLine(facts.stats);
  if (const Bytes planned = facts.plan->predicted.peak_live_bytes; planned > 0) {
    line += "; live now " + Human(facts.stats.live_bytes) + ", at the traced run's peak " + Human(planned);
  }
  return line;
}

// Of the plan's requests over a granule, those that have slots: with experts far from all.
double ShareWithSlots(const DevicePlan& plan) {
  std::size_t requests = 0;
  std::size_t with_slots = 0;
  for (const Script& script : plan.cycle) {
    for (const Entry& entry : script.entries) {
      if (entry.bytes <= kBlockAlignment) continue;
      ++requests;
      with_slots += entry.slot != kNoSlot ? 1 : 0;
    }
  }
  return requests == 0 ? 1 : static_cast<double>(with_slots) / static_cast<double>(requests);
}

bool IsUnlikeItsPlan(const OutOfMemoryFacts& facts) {
  const SteadyCounts& steady = facts.stats.steady;
  const double expected = static_cast<double>(steady.requests) * ShareWithSlots(*facts.plan);
  return static_cast<double>(steady.hits) < 0.9 * expected;
}

std::string AdviceLine(const OutOfMemoryFacts& facts, const std::string& report) {
  const RuntimeStats& stats = facts.stats;
  const Bytes planned = facts.plan->predicted.peak_live_bytes;
  const Bytes needed = stats.live_bytes + BlockBytes(facts.requested);
  std::string line = "What to do: ";
  if (planned > 0 && needed > planned + planned / 50) {
    line += "this run needs more than the traced one did (" + Human(needed) + " against " + Human(planned) +
            "): trace and plan again with this batch size and sequence length, or lower them";
  } else if (IsUnlikeItsPlan(facts)) {
    line += "this run is unlike its plan: trace and plan again, or set STALLOC_MODE=Torch";
  } else {
    line +=
        "the device has less memory outside the arena than the plan foresaw: end other users of the device, or set "
        "STALLOC_MODE=Torch to run without the plan";
  }
  return line + (report.empty() ? ". STALLOC_OOM_REPORT=<directory> writes a report with every live block"
                                : ". Report: " + report);
}

}  // namespace

const Entry* ExpectedEntry(const OutOfMemoryFacts& facts) noexcept {
  if (facts.plan == nullptr || !facts.position.in_script) return nullptr;
  const Script* const script = ScriptOf(*facts.plan, facts.position.script);
  if (script == nullptr || facts.position.entry < 0) return nullptr;
  const auto at = static_cast<std::size_t>(facts.position.entry);
  return at < script->entries.size() ? &script->entries[at] : nullptr;
}

std::vector<std::string> ExplainOutOfMemory(const OutOfMemoryFacts& facts, const std::string& report) {
  std::vector<std::string> lines;
  if (facts.plan != nullptr) {
    lines = {ArenaLine(facts), PlanLine(facts), AdviceLine(facts, report)};
  } else if (facts.stats.heap_bytes > 0) {
    lines.push_back("stalloc: the exact trace's heap holds " + Human(facts.stats.heap_bytes) +
                    " of this device, not part of PyTorch's figures above");
    lines.push_back("What to do: trace with STALLOC_TRACE_FAST_MODE=1, or fewer layers" +
                    (report.empty() ? std::string() : ". Report: " + report));
  } else if (!report.empty()) {
    lines.push_back("stalloc: report: " + report);
  }
  return lines;
}

}  // namespace stalloc
