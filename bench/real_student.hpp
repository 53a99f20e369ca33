#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/job_spec.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::bench {

struct RealStudentOptions {
    std::string student;  ///< model folder, or Llama config as a JSON object
    Dtype dtype = Dtype::auto_select;
    std::string device = "cpu";
    TrainingSpec training{};
    bool with_teacher = true;
    std::uint32_t sequence_length = 0;
};

/// A student as a job trains it. Throws UsageError. On the thread that trains it, whose number of threads is set.
std::unique_ptr<Student> make_real_student(const RealStudentOptions& options);

}  // namespace distilld::bench
