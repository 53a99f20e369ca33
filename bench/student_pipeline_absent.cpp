// What a build without libtorch says to distilld-bench pipeline --student.
#include <iostream>

#include "bench/scenario.hpp"

namespace distilld::bench {

int run_pipeline_with_student(const PipelineOptions&) {
    std::cerr << "distilld-bench: --student needs a build with libtorch (DISTILLD_WITH_TORCH)\n";
    return 2;
}

}  // namespace distilld::bench
