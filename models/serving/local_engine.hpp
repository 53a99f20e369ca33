#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/serving/local_teacher.hpp"

namespace distilld::models {

/// What messages call the fields that describe a module.
struct ModuleFields {
    std::string file = "/teacher/module";
    std::string names = "/teacher/";  ///< before "inputs" and "outputs"
};

/// Loads the TorchScript file `spec.module` on a device (as /student/device), and sets libtorch's number of threads
/// unless `spec.threads` is 0, as load_teacher_engine() does. Its answers are those of its evaluation mode.
[[nodiscard]] Result<std::unique_ptr<TeacherModule>> load_module_engine(const TeacherSpec& spec,
                                                                        const ModuleFields& fields,
                                                                        const std::string& device);

/// Threads of an in-process teacher: `wanted`, or for 0 half of `cores`, at least one.
[[nodiscard]] std::uint32_t local_threads_for(std::uint32_t wanted, std::uint32_t cores) noexcept;

/// Loads the model as `distilld teacher` does, for a student on `student_device` (as /student/device). With OpenMP, as
/// in libtorch's CPU builds, the number of threads belongs to the computing thread, so the student's does not change.
[[nodiscard]] LoadTeacherModel local_model_loader(std::string student_device);

/// The same for a TorchScript file, on the student's device or the CPU.
[[nodiscard]] LoadTeacherModule local_module_loader(std::string student_device);

/// Both loaders.
[[nodiscard]] inline LocalModels local_models(const std::string& student_device) {
    return {local_model_loader(student_device), local_module_loader(student_device)};
}

}  // namespace distilld::models
