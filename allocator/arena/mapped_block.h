// MappedBlock: one block of a page heap with addresses of its own.
//
//   addresses   |   head page   | extent | extent | extent |   tail page   |
//   block               [ head  :     full pages           :  tail ]
//                       ^ address                                  ^ address + bytes
//
// The head and tail pages are shared pages; either, or both, or the extents may be absent. Plain data; bytes.
#pragma once

#include <vector>

#include "allocator/arena/page_pool.h"
#include "allocator/arena/shared_pages.h"
#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

struct MappedBlock {
  Address address = 0;  // what the program has
  Bytes bytes = 0;
  Address range = 0;  // the mapped addresses, whole pages
  Bytes range_bytes = 0;
  std::vector<Extent> extents;
  SharedPages::Piece head;
  SharedPages::Piece tail;
  StreamHandle stream = 0;
  bool recorded = false;  // used on another stream too
  bool ending = false;    // its free has begun
};

}  // namespace stalloc
