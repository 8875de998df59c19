// EntryGroups: groups of entries that a script has several times in a row, alike but for what varies in them: a layer's
// experts.
//
// Note [One group more]
//      ... [ ~ ~ ~ X ] [ ~ ~ ~ X ]  X  Y ...       an expert that had no tokens when it was traced: ~ ~ ~ X  once more
//                                   ^ cursor
// Of the group that is one more the sizes are not known, and say nothing; but its X is taken for the X behind the
// groups, whose block lives much longer, say, and that one for what comes next. So where what follows the groups has
// the size of something in them, a request that could begin a group does.
//
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

// By position: how many entries the last of several groups has that end there, if the entry there could be taken for
// one of its own; else 0.
[[nodiscard]] std::vector<std::uint8_t> FindEntryGroups(const std::vector<Entry>& entries);

}  // namespace stalloc
