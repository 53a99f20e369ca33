#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"

namespace distilld {

/// A model that the run itself computes: the student, or a teacher in the process (model_dir). Its arithmetic belongs
/// to the run, even if the spec leaves it to the machine: checkpoints name the choice, and resumed runs keep it.
struct ModelArithmetic {
    std::string pointer;     ///< of its field in the spec: "/student/dtype", "/teacher/dtype", "/teachers/code/dtype"
    std::string device;      ///< where it computes, as /student/device; "auto" if that means CUDA where available
    Dtype* dtype = nullptr;  ///< in the spec

    [[nodiscard]] bool open() const noexcept { return *dtype == Dtype::auto_select; }
};

/// The models of a spec, the student first. They refer to the spec.
[[nodiscard]] std::vector<ModelArithmetic> arithmetics_of(JobSpec& spec);

/// The arithmetic that "auto" means on a device of this machine (models::effective_dtype()).
using DtypeHere = std::function<Result<Dtype>(std::string_view device)>;

/// Replaces "auto" by what is fast on this machine.
Result<void> settle(ModelArithmetic& model, const DtypeHere& here);

/// The same for all models of the spec.
Result<void> settle(JobSpec& spec, const DtypeHere& here);

/// Pointers of the fields that the spec leaves to the machine.
[[nodiscard]] std::set<std::string> open_arithmetics(JobSpec& spec);

/// Notes about a resumed run with settled arithmetic: one line per model that was open and that a new run would settle
/// differently here.
[[nodiscard]] std::vector<std::string> kept_arithmetics(JobSpec& spec, const std::set<std::string>& were_open,
                                                        const DtypeHere& here);

}  // namespace distilld
