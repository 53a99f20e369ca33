#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/kinds/value_kinds.hpp"

namespace distilld {

/// A file or folder that a job uses. A folder includes everything in it.
struct PathClaim {
    std::string path;  ///< absolute, links resolved; a claim to read may be a pattern (glob)
    api::PathUse use = api::PathUse::writes;
    std::string pointer{};   ///< the field of the spec that names it
    bool is_output = false;  ///< of a shared place: it is the job's output, which no other job may own
    /// To read: a store without a sealed shard. The job has no other teacher, so it cannot begin.
    bool is_awaited = false;
    bool operator==(const PathClaim&) const = default;
};

/// All claims of one job.
struct PathClaims {
    std::vector<PathClaim> paths;
    std::string owner{};    ///< the id of a key; empty: no owner
    bool is_admin = false;  ///< the key is an administrator's: files that others' jobs have left do not matter
    std::string array{};    ///< id of the first of several tasks, which write one store; empty: the job is not a task
};

/// Why a job cannot have its claims.
struct ClaimConflict {
    PathClaim wanted;
    PathClaim held;
    std::string job;     ///< the job that holds it
    bool ended = false;  ///< that job has ended: the claim conflicts because the owners differ
};

/// Which job uses which places, and who owns what the jobs have made. Two places overlap when they are equal or one
/// lies in the other. Until one of two jobs has ended, neither writes where the other writes, and neither writes where
/// a job of another owner reads. What a job has written stays its owner's after its end, until it is forgotten. A pure
/// data structure: a question costs as many steps as the paths have parts and as there are overlapping claims.
class ClaimTable {
  public:
    /// Replaces the job's earlier claims.
    void claim(const std::string& job, const PathClaims& claims);
    /// The job has ended: it no longer reads or writes.
    void end(const std::string& job);
    /// What the job has made no longer has an owner.
    void forget(const std::string& job);

    /// What conflicts with these claims; the claims of `job` itself do not.
    [[nodiscard]] std::optional<ClaimConflict> conflict(const PathClaims& claims, const std::string& job = {}) const;
    /// The jobs that have not ended and whose output is this shared place.
    [[nodiscard]] std::vector<std::string> makers(const std::string& path) const;

  private:
    struct Holder {
        std::string owner;
        std::string array;
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
    std::multimap<std::string, Held> held_places_;  ///< by path with a trailing slash; for a pattern, its fixed part
};

}  // namespace distilld
