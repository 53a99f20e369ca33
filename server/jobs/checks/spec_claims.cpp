#include "server/jobs/checks/spec_claims.hpp"

#include <filesystem>
#include <string>
#include <utility>

#include "api/spec_fields.hpp"
#include "api/spec_paths.hpp"
#include "base/files/file_patterns.hpp"
#include "server/security/path_rule.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using api::PathUse;

/// A path that leads nowhere (links in a circle) is claimed as written; opening it will fail.
std::string resolved(const fs::path& path) {
    return resolved_path(path).value_or(path).string();
}

std::string resolved_pattern(const std::string& path) {
    const fs::path fixed = fixed_part(path);
    const fs::path rest = fs::path(path).lexically_relative(fixed);
    return fixed == path || rest.empty() ? resolved(path) : (fs::path(resolved(fixed)) / rest).string();
}

}  // namespace

std::vector<PathClaim> claims_of(const JobSpec& spec) {
    std::vector<PathClaim> claims;
    api::each_path(spec, api::spec_table(), [&](const api::NamedPath& named) {
        const bool is_generate = spec.kind == JobKind::generate;
        if (is_generate && named.field.pointer == "/output") {
            return;  // it is the store
        }
        auto place = named.use == PathUse::reads ? resolved_pattern(named.path) : resolved(named.path);
        claims.push_back({std::move(place), named.use, named.pointer, is_generate && named.use == PathUse::shares});
    });
    if (spec.kind == JobKind::train && spec.checkpoint.dir.empty()) {
        claims.push_back({resolved(fs::path(spec.output) / "checkpoints"), PathUse::writes, "/output"});
    }
    return claims;
}

api::SpecViolations claim_violation(const ClaimConflict& conflict) {
    const std::string& wanted = conflict.wanted.path;
    const std::string& held = conflict.held.path;
    std::string place = "'" + wanted + "'";
    if (wanted != held) {
        const bool inside = wanted.size() > held.size();
        place += (inside ? " lies in '" : " holds '") + held + "'";
    }
    std::string does = conflict.held.use == api::PathUse::reads ? "reads" : "writes to";
    std::string detail = place + ": job " + conflict.job + " " + does +
                         " it and has not ended; name another folder, or wait until that job has ended";
    if (conflict.ended) {
        detail = place + ": job " + conflict.job + " of another key has written it; name another folder";
    }
    api::SpecViolations violations;
    violations.violations.push_back(
        {conflict.wanted.pointer, conflict.ended ? "path_not_allowed" : "conflict", std::move(detail)});
    return violations;
}

}  // namespace distilld
