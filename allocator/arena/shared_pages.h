// SharedPages: physical pages that several blocks share, at 512 B grain.
//
//   one page:   | tail of A |  gap  | small | small |  gap  | head of B |
//               0                                                      page
//
// A block that is no whole number of pages has its remainder here: as a tail, at offset 0 of a page that is mapped
// behind the block's own pages; or as a head, at the end of a page mapped before them. So one page serves two such
// blocks, and small blocks fill the middle. Pages alternate in direction: small blocks are cut from the upper end of a
// gap in one page and from the lower end in the next, so that room for tails and room for heads both stay.
//
// Every gap has a tag: which stream used its bytes last. That stream may have them back at once (its work is in order),
// others only after the device was synchronised (AllClean). Best fit by gap size over all pages; ties go to the older
// page. Not thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

// A stream handle, or one of the two below, which no stream has.
using UseTag = std::uint64_t;
inline constexpr UseTag kClean = ~UseTag{0};           // no work is queued on these bytes
inline constexpr UseTag kQuarantine = ~UseTag{0} - 1;  // work of several streams may be queued on them

class SharedPages {
 public:
  struct Gap {
    Bytes bytes = 0;
    UseTag tag = kClean;
  };
  struct Page {
    std::uint64_t id = 0;
    PhysicalHandle handle = 0;
    Address home = 0;  // where small blocks see the page; 0 until the first of them
    Bytes free_bytes = 0;
    bool upward = false;  // small blocks are cut from the lower end of a gap
    std::map<Offset, Gap> gaps;
  };
  // Bytes of one page, in use.
  struct Piece {
    Page* page = nullptr;
    Offset offset = 0;
    Bytes bytes = 0;
    UseTag before = kClean;  // the gap's tag, to undo
    explicit operator bool() const noexcept { return page != nullptr; }
  };

  explicit SharedPages(Bytes page_bytes) : page_bytes_(page_bytes) {}

  // A new, wholly free page over one physical page.
  Page* Add(PhysicalHandle handle);
  // REQUIRES: wholly free. The handle and the home mapping are the caller's to dispose of.
  void Remove(Page* page);

  // Each gives a piece with page == nullptr when there is no room for it. REQUIRES: 0 < bytes < page, a multiple of
  // 512.
  [[nodiscard]] Piece TakeAnywhere(Bytes bytes, StreamHandle stream);
  // At offset 0 or at the end of a page.
  [[nodiscard]] Piece TakeAtEdge(Bytes bytes, StreamHandle stream);
  // Two pieces, a head and a tail of two different gaps, that have `bytes` (< 2 pages) together.
  [[nodiscard]] bool TakeSplit(Bytes bytes, StreamHandle stream, Piece* head, Piece* tail);
  void GiveBack(const Piece& piece, UseTag tag);
  void Undo(const Piece& piece) { GiveBack(piece, piece.before); }

  // The device has been synchronised: every gap is anybody's.
  void AllClean();
  // A page that is wholly free and clean; null if none.
  [[nodiscard]] Page* FindEmpty();

  [[nodiscard]] Bytes free_bytes() const noexcept { return free_bytes_; }
  [[nodiscard]] const std::map<std::uint64_t, std::unique_ptr<Page>>& pages() const noexcept { return pages_; }
  // Gaps are disjoint, coalesced, indexed, and add up. Empty: fine.
  [[nodiscard]] std::string CheckInvariants() const;

 private:
  using Key = std::tuple<Bytes, std::uint64_t, Offset>;  // gap bytes, page id, offset
  struct Index {
    std::set<Key> any;
    std::set<Key> bottom;  // gaps at offset 0
    std::set<Key> top;     // gaps that reach the page's end
  };
  using IndexSet = std::set<Key> Index::*;
  struct Found {
    Page* page = nullptr;
    Offset offset = 0;
    Gap gap;
  };

  // The smallest gap of at least `bytes` that `stream` may use.
  [[nodiscard]] Found BestFit(IndexSet set, Bytes bytes, StreamHandle stream) const;
  [[nodiscard]] Found Largest(IndexSet set, StreamHandle stream) const;
  [[nodiscard]] Found ToFound(const Key& key, UseTag tag) const;
  Piece Cut(const Found& found, Offset offset, Bytes bytes);
  void InsertGap(Page* page, Offset offset, Gap gap);
  void EraseGap(Page* page, Offset offset);
  template <typename Action>
  void ForEachIndexOf(Index* index, const Key& key, Action action) const;

  const Bytes page_bytes_;
  std::map<std::uint64_t, std::unique_ptr<Page>> pages_;  // by id
  std::map<UseTag, Index> index_;
  std::uint64_t next_id_ = 0;
  Bytes free_bytes_ = 0;
};

}  // namespace stalloc
