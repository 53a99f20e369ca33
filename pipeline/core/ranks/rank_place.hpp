#pragma once

#include <boost/describe/class.hpp>
#include <cstdint>
#include <string>

namespace distilld {

/// One of the workers that train a job together, and where they meet.
struct RankPlace {
    std::uint32_t rank = 0;
    std::uint32_t count = 1;
    std::string host;        ///< of the meeting point
    std::uint16_t port = 0;  ///< of the meeting point
    /// Whether the launcher serves the meeting point; otherwise rank 0 does.
    bool hosted = false;
    /// How often the launcher has started the ranks again: those of different attempts do not meet.
    std::uint32_t attempt = 0;
    /// Ranks on the same machine, which share its cores.
    std::uint32_t local_count = 1;
    std::uint32_t local_rank = 0;  ///< among them; selects a GPU
};
BOOST_DESCRIBE_STRUCT(RankPlace, (), (rank, count, host, port, hosted, attempt, local_count, local_rank))

/// "rank 1 of 4"
[[nodiscard]] inline std::string name_of_rank(std::uint32_t rank, std::uint32_t count) {
    return "rank " + std::to_string(rank) + " of " + std::to_string(count);
}

}  // namespace distilld
