#include "planner/facts/call_sites.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

// What stalloc puts around calls of a framework, and what starts the program. As own_calls.py of the Python package,
// which says whose traces have which names.
bool IsOwn(const std::string& file) {
  for (const char* folder :
       {"/stalloc/core/", "/stalloc/train/", "/stalloc/_", "/stalloc/frameworks/", "/stalloc/megatron/"}) {
    if (absl::StrContains(file, folder)) return true;
  }
  for (const char* name : {"/stalloc/cli.py", "/stalloc/compat.py", "/stalloc/megatron.py", "/stalloc/trace.py"}) {
    if (absl::EndsWith(file, name)) return true;
  }
  return false;
}

// It calls the program: what is outside of it starts python and stalloc.
bool IsLauncher(const std::string& file) {
  return absl::EndsWith(file, "/stalloc/train/runner.py") || absl::EndsWith(file, "/stalloc/_runner.py");
}

// Not where a reader would look.
bool IsLibrary(const std::string& file) { return absl::StrContains(file, "/torch/") || IsOwn(file); }

}  // namespace

std::string CallSites::Site(std::uint32_t stack_plus_one) const {
  if (stack_plus_one == 0) return {};
  const StackCall* site = &head_.calls[stack_plus_one - 1];
  for (std::uint32_t at = stack_plus_one; at != 0; at = head_.calls[at - 1].parent_plus_one) {
    const StackCall& call = head_.calls[at - 1];
    if (IsLibrary(head_.texts[call.file])) continue;
    site = &call;
    break;
  }
  const std::string& path = head_.texts[site->file];
  return absl::StrCat(path.substr(path.rfind('/') + 1), ":", site->line, " ", head_.texts[site->function]);
}

std::string CallSites::Stack(std::uint32_t stack_plus_one) const {
  std::string text;
  for (std::uint32_t at = stack_plus_one; at != 0; at = head_.calls[at - 1].parent_plus_one) {
    const StackCall& call = head_.calls[at - 1];
    if (IsLauncher(head_.texts[call.file])) break;
    if (IsOwn(head_.texts[call.file])) continue;
    absl::StrAppend(&text, text.empty() ? "" : "\n", head_.texts[call.file], ":", call.line, " ",
                    head_.texts[call.function]);
  }
  return text;
}

std::uint32_t SiteNumbers::Of(std::uint32_t stack_plus_one) {
  const auto [found, is_new] = by_stack_.try_emplace(stack_plus_one, 0);
  if (is_new) {
    const auto number = static_cast<std::uint32_t>(by_site_.size() + 1);
    found->second = by_site_.try_emplace(calls_.Site(stack_plus_one), number).first->second;
  }
  return found->second;
}

std::uint32_t StackIndex::Of(std::uint32_t stack_plus_one) {
  const auto [found, is_new] = known_.try_emplace(stack_plus_one, static_cast<std::uint32_t>(stacks_.size()));
  if (is_new) stacks_.push_back(stack_plus_one);
  return found->second;
}

}  // namespace stalloc::planner
