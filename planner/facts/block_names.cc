#include "planner/facts/block_names.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

// All tensors of one block.
std::span<const BlockTensor> TensorsOf(const DeviceTrace& device, std::uint32_t allocation) {
  const auto begin =
      std::lower_bound(device.tensors.begin(), device.tensors.end(), allocation,
                       [](const BlockTensor& tensor, std::uint32_t at) { return tensor.allocation < at; });
  const auto end = std::find_if(begin, device.tensors.end(),
                                [&](const BlockTensor& tensor) { return tensor.allocation != allocation; });
  return {begin, end};
}

// "GPT.up.weight:exp_avg" -> "GPT.up": what is after the colon is the optimizer's.
std::string_view ModuleIn(std::string_view name) {
  name = name.substr(0, name.find(':'));
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

// The innermost module that holds both.
std::string_view Common(std::string_view a, std::string_view b) {
  std::size_t common = 0;
  for (std::size_t at = 0; at <= std::min(a.size(), b.size()); ++at) {
    const bool a_ends = at == a.size() || a[at] == '.';
    const bool b_ends = at == b.size() || b[at] == '.';
    if (a_ends && b_ends) common = at;
    if (at == std::min(a.size(), b.size()) || a[at] != b[at]) break;
  }
  return a.substr(0, common);
}

}  // namespace

std::string_view BlockNames::NameOf(const BlockTensor& tensor) const { return Text(tensor.name); }

BlockNames::Row BlockNames::Of(std::uint32_t allocation) const {
  const std::span<const BlockTensor> tensors = TensorsOf(device_, allocation);
  if (tensors.empty()) return {};
  return {tensors.front().name, static_cast<std::uint32_t>(tensors.size())};
}

std::string BlockNames::Text(Row row) const {
  if (row.count == 0 || row.first >= texts_.size()) return {};
  return row.count == 1 ? texts_[row.first] : absl::StrCat(texts_[row.first], " and ", row.count - 1, " more");
}

std::string BlockNames::Lines(std::uint32_t allocation, std::size_t most) const {
  const std::span<const BlockTensor> tensors = TensorsOf(device_, allocation);
  std::string text;
  for (const BlockTensor& tensor : tensors.first(std::min(most, tensors.size()))) {
    text.append(text.empty() ? "" : "\n").append(NameOf(tensor));
  }
  return text;
}

std::string_view BlockNames::ModuleOf(std::uint32_t allocation) const {
  const std::span<const BlockTensor> tensors = TensorsOf(device_, allocation);
  if (tensors.empty()) return {};
  std::string_view module = ModuleIn(NameOf(tensors.front()));
  for (const BlockTensor& tensor : tensors.subspan(1)) module = Common(module, ModuleIn(NameOf(tensor)));
  return module;
}

}  // namespace stalloc::planner
