#pragma once

namespace distilld {

/// Kinds of a FailedEvent in addition to those of ErrorKind: the machine or its device is out of memory.
inline constexpr const char* kOutOfMemory = "out_of_memory";

/// Another rank of the job has ended or is not heard of.
inline constexpr const char* kRankLost = "rank_lost";

/// A later attempt of the job, or another run, has taken the folders of this one.
inline constexpr const char* kReplaced = "replaced";

}  // namespace distilld
