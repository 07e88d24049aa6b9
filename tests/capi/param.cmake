# SPDX-License-Identifier: Apache-2.0
# Communicators, primary weights, collectives: ranks are threads here.
fp8_capi_test(all_gather test_all_gather.c)
fp8_capi_test(comm test_comm.c)
fp8_capi_test(comm_nccl test_comm_nccl.c)
fp8_capi_test(dispatch test_dispatch.c)
fp8_capi_test(dispatch_golden test_dispatch_golden.c)
fp8_capi_test(dispatch_plan test_dispatch_plan.c)
fp8_capi_test(param test_param.c)
fp8_capi_test(param_cuts test_param_cuts.c)
fp8_capi_test(param_memory test_param_memory.c)
add_test(NAME capi.param_every_cut CONFIGURATIONS long COMMAND test_capi_param_cuts every)
set_tests_properties(capi.param_every_cut PROPERTIES LABELS "capi;slow" TIMEOUT 7200)
