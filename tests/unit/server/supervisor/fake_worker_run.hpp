#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "pipeline/core/worker_events.hpp"
#include "server/supervisor/worker_process.hpp"
#include "tests/support/paths.hpp"

namespace distilld::test {

/// The program tests/support/fake_worker.cpp, told what to do.
inline WorkerProcessOptions fake(const std::string& behaviour) {
    WorkerProcessOptions options;
    options.program = bin_dir() / "fake_worker";
    options.arguments = {behaviour};
    options.forward_stderr = false;
    return options;
}

/// What one run of a fake worker came to.
struct Outcome {
    std::optional<Result<WorkerExit>> exit;
    std::vector<WorkerEvent> events;

    template <class T>
    [[nodiscard]] std::vector<T> of() const {
        std::vector<T> found;
        for (const auto& event : events) {
            if (const T* one = std::get_if<T>(&event)) {
                found.push_back(*one);
            }
        }
        return found;
    }
    [[nodiscard]] int exit_code() const { return exit->value().exit_code; }
    /// The failure, which must be the only one and the last event.
    [[nodiscard]] FailedEvent failure() const {
        if (of<FailedEvent>().size() != 1 || !std::holds_alternative<FailedEvent>(events.back())) {
            throw std::runtime_error("not one failure at the end");
        }
        return of<FailedEvent>().front();
    }
};

}  // namespace distilld::test
