#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// A model that a run computes with itself: the student, or a teacher in the process (model_dir). In which arithmetic
/// it computes is a function of the run, also where the spec leaves it to the machine: checkpoints name what that came
/// to, and who goes on from them takes it over.
struct ModelArithmetic {
    std::string pointer;     ///< of its field in the spec: "/student/dtype", "/teacher/dtype", "/teachers/code/dtype"
    std::string device;      ///< on which it computes, as /student/device; "auto" where that is CUDA if there is any
    Dtype* dtype = nullptr;  ///< in the spec

    [[nodiscard]] bool open() const noexcept { return *dtype == Dtype::auto_select; }
};

/// Of a spec, which they refer to: the student's first.
[[nodiscard]] std::vector<ModelArithmetic> arithmetics_of(JobSpec& spec);

/// Which arithmetic "auto" comes to on a device of this machine (models::dtype_in_force()).
using DtypeHere = std::function<Result<Dtype>(std::string_view device)>;

/// An open one becomes what this machine is fast at.
Result<void> settle(ModelArithmetic& model, const DtypeHere& here);

/// All of them.
Result<void> settle(JobSpec& spec, const DtypeHere& here);

/// Of those that a spec leaves to the machine, their pointers.
[[nodiscard]] std::set<std::string> open_arithmetics(JobSpec& spec);

/// What is to be said of a resumed run, of which all are settled: a line for each that was open and that a new run
/// would settle otherwise here.
[[nodiscard]] std::vector<std::string> kept_arithmetics(JobSpec& spec, const std::set<std::string>& were_open,
                                                        const DtypeHere& here);

}  // namespace distilld
