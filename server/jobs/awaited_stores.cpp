#include "server/jobs/awaited_stores.hpp"

#include <algorithm>

#include "pipeline/store/sealed_shards.hpp"
#include "server/jobs/checks/spec_claims.hpp"
#include "server/security/path_rule.hpp"

namespace distilld {

std::vector<PathClaim> claims_now(const JobSpec& spec) {
    std::vector<PathClaim> claims = claims_of(spec);
    if (spec.kind != JobKind::train) {
        return claims;
    }
    for (const auto& [name, teacher] : spec.teachers) {
        if (can_be_asked(teacher) || teacher.store.empty()) {
            continue;
        }
        const auto store = resolved_path(teacher.store).value_or(teacher.store).string();
        const auto claim = std::ranges::find_if(
            claims, [&store](const PathClaim& one) { return one.use == api::PathUse::reads && one.path == store; });
        if (claim != claims.end()) {
            claim->is_awaited = !lists_a_shard(store);
        }
    }
    return claims;
}

}  // namespace distilld
