#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "models/serving/teacher_scorer.hpp"

namespace distilld::teacher {

/// Counters of a teacher server, in the Prometheus text format. Any thread.
class TeacherMetrics {
  public:
    TeacherMetrics();
    ~TeacherMetrics();
    TeacherMetrics(const TeacherMetrics&) = delete;
    TeacherMetrics& operator=(const TeacherMetrics&) = delete;

    /// A scoring request was answered. `protocol` is kserve or seed.
    void answered(std::string_view protocol, unsigned status, std::chrono::nanoseconds duration);
    /// The compute thread took up this many requests at once.
    void batch(std::size_t requests);
    /// One request was computed.
    void computed(std::uint64_t tokens, std::chrono::nanoseconds queue_wait, std::chrono::nanoseconds compute);
    /// Its client gave up before it was computed.
    void dropped();
    void set_waiting(std::size_t requests);
    void set_model(const models::ServedModel& model, const std::string& name);

    [[nodiscard]] std::string text() const;

  private:
    struct Families;
    std::unique_ptr<Families> families_;
};

}  // namespace distilld::teacher
