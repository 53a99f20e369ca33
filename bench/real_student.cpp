#include "bench/real_student.hpp"

#include "bench/scenario.hpp"
#include "models/training/causal_lm_student.hpp"

namespace distilld::bench {

std::unique_ptr<Student> make_real_student(const RealStudentOptions& options) {
    models::CausalLmStudentOptions student;
    if (options.student.starts_with("{")) {
        student.student.init = StudentInit::random;
        student.student.config_json = options.student;
    } else {
        student.student.model = options.student;
    }
    student.student.dtype = options.dtype;
    student.student.device = options.device;
    student.training = options.training;
    student.with_teacher = options.with_teacher;
    student.sequence_length = options.sequence_length;
    Result<std::unique_ptr<Student>> made = models::make_causal_lm_student(student);
    if (!made) {
        throw UsageError("--student: " + made.error().message);
    }
    return std::move(*made);
}

}  // namespace distilld::bench
