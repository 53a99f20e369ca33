#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/jobs/store/job_store.hpp"

namespace distilld {

/// The jobs that the spec of a new one asks for (`tasks`), that one first. If they are several, each knows its number,
/// and the names of the others have it too. `make_id` names them.
[[nodiscard]] std::vector<NewJob> with_its_tasks(StoredJob first, std::string (*make_id)());

/// The array that a job is a task of, as PathClaims names it.
[[nodiscard]] std::string array_of(const api::Job& job);

}  // namespace distilld
