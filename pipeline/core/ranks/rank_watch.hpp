#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/core/ranks/rank_place.hpp"

namespace distilld {

/// Why a rank cannot go on.
struct RankVerdict {
    std::uint32_t rank = 0;  ///< whose end it is
    bool left = false;       ///< it ended in good order, for example because the job was cancelled
    std::string words;
};

/// What the store shows of the ranks when one of them looks.
struct RankSigns {
    std::vector<std::string> beats;                ///< by rank: changes as long as the rank lives
    std::vector<std::optional<std::string>> ends;  ///< by rank: how it has ended; empty: it goes on
    std::optional<std::string> verdict;            ///< what a rank has published
};

/// Decides for one rank whether the others still train. A state machine without a clock, a network or a thread: the
/// owner looks at a store that all ranks share, about once per heartbeat. The first verdict about a loss that is
/// published there is the one of all ranks, so that all name the same rank.
class RankWatch {
  public:
    /// What a rank says of its end: in good order, by its own failure, or because another is lost.
    [[nodiscard]] static std::string end_of_run() { return "left"; }
    [[nodiscard]] static std::string end_by_failure(const std::string& why) { return "failed: " + why; }
    [[nodiscard]] static std::string end_by_verdict(const RankVerdict& verdict);

    /// A rank is lost after more than `max_silent_looks` looks without a new beat. Looks are counted, not time: after a
    /// pause of the whole machine, all have to look again.
    RankWatch(std::uint32_t rank, std::uint32_t count, std::uint32_t max_silent_looks);

    /// A transfer to or from `peer` has broken: it is lost, unless the next look shows another cause.
    void suspect(std::uint32_t peer, const std::string& why);

    /// nullopt: go on. A verdict about a loss is to be published if there is none yet, and read() from what is then
    /// published.
    [[nodiscard]] std::optional<RankVerdict> look(const RankSigns& signs);
    /// The verdict if the store does not answer. `hosted`: the launcher has it, otherwise rank 0.
    [[nodiscard]] RankVerdict no_store(bool hosted, const std::string& why) const;

    [[nodiscard]] static std::string write(const RankVerdict& verdict);
    /// `text`: written by another rank, perhaps of another version.
    [[nodiscard]] RankVerdict read(const std::string& text) const;

  private:
    [[nodiscard]] std::string name_of(std::uint32_t rank) const { return name_of_rank(rank, count_); }

    struct Heard {
        std::string beat;
        std::uint32_t silent_looks = 0;
    };
    struct Suspicion {
        std::uint32_t rank = 0;
        std::string why;
        std::uint32_t looks = 0;  ///< since
    };

    std::uint32_t rank_;
    std::uint32_t count_;
    std::uint32_t max_silent_looks_;
    std::vector<Heard> heard_;
    std::optional<Suspicion> suspicion_;
};

}  // namespace distilld
