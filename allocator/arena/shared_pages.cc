#include "allocator/arena/shared_pages.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace stalloc {
namespace {

// A clean gap that touches a stream's gap joins it: the stream may use both.
bool Joinable(UseTag a, UseTag b) {
  return a == b || (a == kClean && b != kQuarantine) || (b == kClean && a != kQuarantine);
}

UseTag JoinedTag(UseTag a, UseTag b) { return a == kClean ? b : a; }

}  // namespace

SharedPages::Page* SharedPages::Add(PhysicalHandle handle) {
  auto page = std::make_unique<Page>();
  page->id = next_id_++;
  page->handle = handle;
  page->upward = page->id % 2 == 1;
  Page* const added = page.get();
  pages_.emplace(added->id, std::move(page));
  InsertGap(added, 0, {page_bytes_, kClean});
  return added;
}

void SharedPages::Remove(Page* page) {
  EraseGap(page, 0);
  pages_.erase(page->id);
}

SharedPages::Found SharedPages::ToFound(const Key& key, UseTag tag) const {
  const auto& [bytes, id, offset] = key;
  return {pages_.at(id).get(), offset, {bytes, tag}};
}

SharedPages::Found SharedPages::BestFit(IndexSet set, Bytes bytes, StreamHandle stream) const {
  const Key* best = nullptr;
  UseTag best_tag = kClean;
  for (const UseTag tag : {UseTag{stream}, kClean}) {
    const auto index = index_.find(tag);
    if (index == index_.end()) {
      continue;
    }
    const auto fit = (index->second.*set).lower_bound({bytes, 0, 0});
    if (fit != (index->second.*set).end() && (best == nullptr || *fit < *best)) {
      best = &*fit;
      best_tag = tag;
    }
  }
  return best == nullptr ? Found{} : ToFound(*best, best_tag);
}

SharedPages::Found SharedPages::Largest(IndexSet set, StreamHandle stream) const {
  const Key* best = nullptr;
  UseTag best_tag = kClean;
  for (const UseTag tag : {UseTag{stream}, kClean}) {
    const auto index = index_.find(tag);
    if (index == index_.end() || (index->second.*set).empty()) {
      continue;
    }
    const Key& last = *std::prev((index->second.*set).end());
    if (best == nullptr || *best < last) {
      best = &last;
      best_tag = tag;
    }
  }
  return best == nullptr ? Found{} : ToFound(*best, best_tag);
}

SharedPages::Piece SharedPages::Cut(const Found& found, Offset offset, Bytes bytes) {
  EraseGap(found.page, found.offset);
  if (offset > found.offset) {
    InsertGap(found.page, found.offset, {offset - found.offset, found.gap.tag});
  }
  const Offset end = found.offset + found.gap.bytes;
  if (offset + bytes < end) {
    InsertGap(found.page, offset + bytes, {end - offset - bytes, found.gap.tag});
  }
  return {found.page, offset, bytes, found.gap.tag};
}

SharedPages::Piece SharedPages::TakeAnywhere(Bytes bytes, StreamHandle stream) {
  const Found found = BestFit(&Index::any, bytes, stream);
  if (found.page == nullptr) {
    return {};
  }
  return Cut(found, found.page->upward ? found.offset : found.offset + found.gap.bytes - bytes, bytes);
}

SharedPages::Piece SharedPages::TakeAtEdge(Bytes bytes, StreamHandle stream) {
  const Found bottom = BestFit(&Index::bottom, bytes, stream);
  const Found top = BestFit(&Index::top, bytes, stream);
  if (bottom.page == nullptr && top.page == nullptr) {
    return {};
  }
  if (top.page == nullptr || (bottom.page != nullptr && bottom.gap.bytes <= top.gap.bytes)) {
    return Cut(bottom, 0, bytes);
  }
  return Cut(top, page_bytes_ - bytes, bytes);
}

bool SharedPages::TakeSplit(Bytes bytes, StreamHandle stream, Piece* head, Piece* tail) {
  // All of the largest room for a head, and the rest from the room for a tail that it fits best.
  const Found top = Largest(&Index::top, stream);
  if (top.page == nullptr || top.gap.bytes == page_bytes_ || top.gap.bytes >= bytes) {
    return false;  // a whole page, or one piece, is not for this function
  }
  const Piece taken = Cut(top, top.offset, top.gap.bytes);
  const Bytes rest = bytes - taken.bytes;
  const Found bottom = rest < page_bytes_ ? BestFit(&Index::bottom, rest, stream) : Found{};
  if (bottom.page == nullptr) {
    Undo(taken);
    return false;
  }
  *head = taken;
  *tail = Cut(bottom, 0, rest);
  return true;
}

void SharedPages::GiveBack(const Piece& piece, UseTag tag) {
  Page* const page = piece.page;
  Offset offset = piece.offset;
  Bytes bytes = piece.bytes;
  const auto next = page->gaps.lower_bound(offset);
  // EraseGap leaves other iterators alone: look at both neighbours before changing either.
  const bool join_next = next != page->gaps.end() && next->first == offset + bytes && Joinable(tag, next->second.tag);
  Gap after = join_next ? next->second : Gap{};
  if (join_next) {
    EraseGap(page, offset + bytes);
    bytes += after.bytes;
    tag = JoinedTag(tag, after.tag);
  }
  const auto above = page->gaps.lower_bound(offset);
  if (above != page->gaps.begin()) {
    const auto [before_offset, before] = *std::prev(above);
    if (before_offset + before.bytes == offset && Joinable(tag, before.tag)) {
      EraseGap(page, before_offset);
      offset = before_offset;
      bytes += before.bytes;
      tag = JoinedTag(tag, before.tag);
    }
  }
  InsertGap(page, offset, {bytes, tag});
}

void SharedPages::AllClean() {
  index_.clear();
  free_bytes_ = 0;
  for (const auto& [id, page] : pages_) {
    const std::map<Offset, Gap> old = std::exchange(page->gaps, {});
    page->free_bytes = 0;
    Offset begin = 0;
    Bytes bytes = 0;
    for (const auto& [offset, gap] : old) {
      if (bytes > 0 && begin + bytes != offset) {
        InsertGap(page.get(), begin, {std::exchange(bytes, 0), kClean});
      }
      begin = bytes == 0 ? offset : begin;
      bytes += gap.bytes;
    }
    if (bytes > 0) {
      InsertGap(page.get(), begin, {bytes, kClean});
    }
  }
}

SharedPages::Page* SharedPages::FindEmpty() {
  const auto index = index_.find(kClean);
  if (index == index_.end() || index->second.any.empty()) {
    return nullptr;
  }
  const Key& largest = *std::prev(index->second.any.end());
  return std::get<0>(largest) == page_bytes_ ? pages_.at(std::get<1>(largest)).get() : nullptr;
}

template <typename Action>
void SharedPages::ForEachIndexOf(Index* index, const Key& key, Action action) const {
  action(&index->any);
  const auto& [bytes, id, offset] = key;
  if (offset == 0) {
    action(&index->bottom);
  }
  if (offset + bytes == page_bytes_) {
    action(&index->top);
  }
}

void SharedPages::InsertGap(Page* page, Offset offset, Gap gap) {
  page->gaps.emplace(offset, gap);
  page->free_bytes += gap.bytes;
  free_bytes_ += gap.bytes;
  const Key key{gap.bytes, page->id, offset};
  ForEachIndexOf(&index_[gap.tag], key, [&key](std::set<Key>* set) { set->insert(key); });
}

void SharedPages::EraseGap(Page* page, Offset offset) {
  const auto it = page->gaps.find(offset);
  const Gap gap = it->second;
  page->gaps.erase(it);
  page->free_bytes -= gap.bytes;
  free_bytes_ -= gap.bytes;
  const Key key{gap.bytes, page->id, offset};
  ForEachIndexOf(&index_.at(gap.tag), key, [&key](std::set<Key>* set) { set->erase(key); });
}

std::string SharedPages::CheckInvariants() const {
  Bytes total = 0;
  std::size_t gaps = 0;
  for (const auto& [id, page] : pages_) {
    Bytes free_here = 0;
    Offset end = 0;
    UseTag last = kQuarantine;
    for (const auto& [offset, gap] : page->gaps) {
      if (gap.bytes == 0 || offset < end || offset + gap.bytes > page_bytes_) {
        return "shared page " + std::to_string(id) + ": gaps overlap at " + std::to_string(offset);
      }
      if (free_here > 0 && offset == end && Joinable(last, gap.tag)) {
        return "shared page " + std::to_string(id) + ": gaps not joined at " + std::to_string(offset);
      }
      const auto index = index_.find(gap.tag);
      if (index == index_.end() || index->second.any.count({gap.bytes, id, offset}) == 0) {
        return "shared page " + std::to_string(id) + ": gap without index at " + std::to_string(offset);
      }
      end = offset + gap.bytes;
      last = gap.tag;
      free_here += gap.bytes;
      ++gaps;
    }
    if (free_here != page->free_bytes) {
      return "shared page " + std::to_string(id) + ": free bytes do not add up";
    }
    total += free_here;
  }
  for (const auto& [tag, index] : index_) {
    gaps -= index.any.size();
  }
  return total != free_bytes_ || gaps != 0 ? "shared pages: totals or index do not add up" : "";
}

}  // namespace stalloc
