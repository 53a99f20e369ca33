// What a build without libtorch says to distilld-bench pipeline --student and loss.
#include "bench/scenario.hpp"

namespace distilld::bench {

boost::json::object run_pipeline_with_student(const PipelineOptions&) {
    throw UsageError("--student needs a build with libtorch (DISTILLD_WITH_TORCH)");
}

boost::json::object run_loss(const LossOptions&) {
    throw UsageError("loss needs a build with libtorch (DISTILLD_WITH_TORCH)");
}

}  // namespace distilld::bench
