#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/value_kinds.hpp"

namespace distilld {

/// A file or folder that a job uses, a folder with all that lies in it.
struct PathClaim {
    std::string path;  ///< absolute, links resolved; reads: may be a pattern (glob)
    api::PathUse use = api::PathUse::writes;
    std::string pointer{};   ///< the field of the spec that names it
    bool is_output = false;  ///< of a shared place: it is the job's output, which no other job may have for its own
    bool operator==(const PathClaim&) const = default;
};

/// All that a job claims, together.
struct PathClaims {
    std::vector<PathClaim> paths;
    std::string owner{};    ///< the id of a key; empty: nobody's
    bool is_admin = false;  ///< the key is an administrator's: what jobs of others have left is no matter
};

/// Why a job cannot have what it claims.
struct ClaimConflict {
    PathClaim wanted;
    PathClaim held;
    std::string job;     ///< that holds it
    bool ended = false;  ///< it has: the claim conflicts because its owner is another
};

/// Which job uses which places, and whose jobs have made them. Two places overlap when they are one or one lies in the
/// other. While neither has ended, nobody writes where another job writes, and nobody but their owner writes where
/// another owner's job reads. What a job has written stays its owner's when it has ended, until it is forgotten. A pure
/// data structure: a question costs as many steps as the paths have parts, and as there are claims that overlap.
class ClaimTable {
  public:
    /// In place of what the job claimed before.
    void claim(const std::string& job, const PathClaims& claims);
    /// The job has ended: it writes and reads no more.
    void end(const std::string& job);
    /// What it has made is anybody's.
    void forget(const std::string& job);

    /// What stands against these claims, those of `job` itself left out.
    [[nodiscard]] std::optional<ClaimConflict> conflict(const PathClaims& claims, const std::string& job = {}) const;

    /// A job that has not ended and writes to this very place.
    [[nodiscard]] std::optional<std::string> writer_of(const std::string& path) const;

  private:
    struct Holder {
        std::string owner;
        bool ended = false;
        std::vector<PathClaim> paths{};
    };
    struct Held {
        std::string job;
        PathClaim claim;
    };
    [[nodiscard]] bool stands_against(const Held& held, const PathClaim& wanted, const PathClaims& claims) const;
    [[nodiscard]] bool is_maker(const std::string& owner, const PathClaim& place) const;
    template <class Visit>
    bool any_overlapping(const std::string& path, const Visit& visit) const;
    void put(const std::string& job, const std::vector<PathClaim>& paths);
    void drop(const std::string& job);

    std::map<std::string, Holder> holders_;         ///< by job
    std::multimap<std::string, Held> held_places_;  ///< by path with a slash behind it; of a pattern its fixed part
};

}  // namespace distilld
