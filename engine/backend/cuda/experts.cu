#include <algorithm>

#include "backend/cuda/kernels/expert_routes.cuh"
#include "backend/cuda/product_args.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

void check_limit(const char* field, int value, int limit) {
  if (value > limit) {
    throw Error(ErrorCode::kUnsupported, field, cat(field, " is ", value, ", CUDA kernels go up to ", limit));
  }
}

// Tiles that `places` rows of `experts` experts fill at most, however they are distributed.
int most_tiles(int places, int experts, int tokens) { return std::min(experts, places) + places / tokens; }

struct ExpertWorkspace {
  size_t x = 0;      // of the prepared tokens
  size_t inner = 0;  // of the prepared places
  size_t tiles = 0;
  size_t bytes() const { return x + inner + tiles; }
};

ExpertWorkspace expert_workspace(InputForm x, InputForm inner, int num_tokens, int places, int dim, int width,
                                 int experts) {
  return {input_bytes(x, num_tokens, dim), input_bytes(inner, places, width),
          sizeof(ExpertTile) * most_tiles(places, experts, 8)};
}

}  // namespace

void route_experts(const Launch& launch, const RouteExpertsParams& p) {
  check_limit("num_experts", p.experts, kMaxExperts);
  check_limit("num_experts_per_tok", p.chosen, kMaxChosen);
  if (p.num_tokens > 0) cuda::launch(route_tokens, dim3(p.num_tokens), dim3(32), 0, launch.stream, p);
}

void group_experts(const Launch& launch, const GroupExpertsParams& p) {
  cuda::launch(group_tokens, dim3(p.experts), dim3(32), 0, launch.stream, p);
}

void combine_experts(const Launch& launch, const CombineExpertsParams& p) {
  if (p.num_tokens > 0) cuda::launch(combine_tokens, dim3(p.num_tokens), dim3(kRowThreads), 0, launch.stream, p);
}

size_t run_experts_workspace(const WorkspaceLimits& limits, InputForm widest) {
  if (limits.max_expert_rows == 0) return 0;
  size_t bytes = 0;
  for (const InputForm& form : {InputForm{.type = DType::kF16}, widest}) {  // of few rows, parts of their own count more
    bytes = std::max(bytes, expert_workspace(form, form, limits.max_tokens, limits.max_expert_rows, limits.max_k,
                                             limits.max_k, limits.max_n)
                                .bytes());
  }
  return bytes;
}

void run_experts(const Launch& launch, const RunExpertsParams& p, const DeviceExpert* experts, int num_experts,
                 const DeviceExpert& shape) {
  const int places = p.num_tokens * p.chosen, width = shape.down.k;
  if (places == 0) return;
  const InputForm x_form = input_form(shape.gate_up), inner_form = input_form(shape.down);
  const ExpertWorkspace sizes = expert_workspace(x_form, inner_form, p.num_tokens, places, p.dim, width, num_experts);
  if (sizes.bytes() > launch.workspace_bytes) {
    throw Error(ErrorCode::kInternal, "workspace",
                cat("experts need a workspace of ", sizes.bytes(), " bytes, there are ", launch.workspace_bytes));
  }
  std::byte* x = launch.workspace;
  std::byte* inner = x + sizes.x;
  auto* tiles = reinterpret_cast<ExpertTile*>(inner + sizes.inner);

  // Tiles for as many tokens as an expert has on average.
  const int average = ceil_div(places, num_experts);
  const int tokens = std::min(tokens_per_block(shape.gate_up.format, average, shape.gate_up.n, *launch.device),
                              tokens_per_block(shape.down.format, average, shape.gate_up.n, *launch.device));
  const int count = most_tiles(places, num_experts, tokens);
  const ListTilesArgs list{p.offsets, num_experts, tokens, tiles, count};
  cuda::launch(list_tiles, dim3(1), dim3(32), 0, launch.stream, list);

  LinearParams prepare;
  prepare.x = p.x;
  prepare.ldx = p.dim;
  prepare.m = p.num_tokens;
  prepare_input(launch, prepare, p.dim, x_form, x);
  ProductArgs args;
  args.experts = experts;
  args.tiles = tiles;
  args.x_rows = p.tokens;
  set_input(args, x_form, p.num_tokens, p.dim, x);
  args.y = p.gate_up;
  args.ldy = args.n = shape.gate_up.n;
  args.m = places;
  launch_product(shape.gate_up.format, launch, args, {tokens, count});

  prepare.x = p.gate_up;
  prepare.ldx = shape.gate_up.n;
  prepare.m = places;
  prepare.prologue = p.gate;
  prepare_input(launch, prepare, width, inner_form, inner);
  args.down = true;
  args.x_rows = nullptr;
  set_input(args, inner_form, places, width, inner);
  args.y = p.out;
  args.ldy = args.n = p.dim;
  launch_product(shape.down.format, launch, args, {tokens, count});
}

}  // namespace octavo::cuda
