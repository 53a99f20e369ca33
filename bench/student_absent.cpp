// What a build without libtorch says to the commands that train a student.
#include "bench/scenario.hpp"

namespace distilld::bench {

boost::json::object run_pipeline_with_student(const PipelineOptions&) {
    throw UsageError("--student needs a build with libtorch (DISTILLD_WITH_TORCH)");
}

boost::json::object run_train(const TrainOptions&) {
    throw UsageError("train needs a build with libtorch (DISTILLD_WITH_TORCH)");
}

boost::json::object run_loss(const LossOptions&) {
    throw UsageError("loss needs a build with libtorch (DISTILLD_WITH_TORCH)");
}

}  // namespace distilld::bench
